// Checks of the style sheets' colours: WCAG 2.2 level AA asks for a ratio of 4.5 for text, and of 3 for lines and marks.

import assert from "node:assert/strict";

import { test } from "@playwright/test";

import { asset } from "./site.mjs";

const TEXT = 4.5;
const GRAPHICS = 3;

/** The variables of the light and of the dark scheme. */
function schemes(style) {
  const blocks = [...style.matchAll(/:root \{(.*?)\}/gs)].map(([, block]) => block);
  assert.equal(blocks.length, 2, "a block of colours for each scheme");
  const colours = (block) => Object.fromEntries([...block.matchAll(/--([\w-]+): (#\w+)/g)].map(([, name, colour]) => [name, colour]));
  return { light: colours(blocks[0]), dark: colours(blocks[1]) };
}

/** Relative luminance, as WCAG defines it. */
function luminance(colour) {
  const digits = colour.slice(1);
  const hex = digits.length === 3 ? digits.replace(/./g, "$&$&") : digits;
  const [red, green, blue] = hex.match(/../g).map((pair) => {
    const share = parseInt(pair, 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function ratio(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

/** Each of `names` on each of `backgrounds`, in both schemes. */
function check(style, names, backgrounds, least) {
  for (const [scheme, colours] of Object.entries(schemes(style))) {
    for (const name of names) {
      for (const background of backgrounds) {
        const found = ratio(colours[name], colours[background]);
        assert.ok(found >= least, `${scheme}: --${name} on --${background} has ${found.toFixed(2)}, expected ${least}`);
      }
    }
  }
}

function text() {
  const style = asset("page.css");
  check(style, ["text", "faint", "good", "warn", "bad", "accent"], ["page", "card", "row"], TEXT);
  check(style, ["on-accent"], ["accent"], TEXT);
}

function graphics() {
  const curves = [0, 1, 2, 3, 4, 5, 6].map((number) => `c${number}`);
  check(asset("page.css"), [...curves, "strong"], ["page", "card"], GRAPHICS);
}

function login() {
  const style = asset("login.html");
  check(style, ["text", "faint", "bad"], ["page", "card"], TEXT);
  check(style, ["on-accent"], ["accent"], TEXT);
  check(style, ["line", "accent"], ["page", "card"], GRAPHICS);
}

test("contrast of text, in both schemes", text);
test("contrast of curves and frames, in both schemes", graphics);
test("contrast of the login form, in both schemes", login);

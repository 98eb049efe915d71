"""Writes docs/reference/python.md from the docstrings. Run: python python/reference.py [--check], where `ata` is installed.

The compiled part is imported; what needs PyTorch is read from its source, so that PyTorch is not needed.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path

import ata

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/reference/python.md"
SOURCES = ROOT / "python/py_src/ata"

HEAD = """# Python package

<!-- Generated from the docstrings by python/reference.py: change them, and run it again. -->

The package `ata` has the program `ata` with all [commands](cli.md), and types (`py.typed`). It needs Python 3.10 or newer and
numpy; `ata.torch` needs PyTorch, `ata.torch.lightning` Lightning too, and `ata.jax` JAX. [PyTorch on a
cluster](../how-to/pytorch-cluster.md) and [Uneven DDP](../how-to/uneven-ddp.md) show how to use it.
"""

SECTION = re.compile(r"^(Args|Returns|Raises|Attributes):$")


def markdown(docstring: str) -> str:
    """A docstring's text, with its sections as lists and its examples as blocks of code."""
    lines: list[str] = []
    section = is_code = False
    for line in inspect.cleandoc(docstring).splitlines():
        if SECTION.match(line):
            lines += [f"**{line[:-1]}**", ""]
            section = True
            continue
        if is_code and line and not line.startswith("    "):
            lines[-1:] = ["```", ""]
            is_code = False
        if section and line.startswith("    ") and not line.startswith("     "):
            named = re.match(r"    (\w+): (.*)", line)
            lines.append(f"- `{named[1]}`: {named[2]}" if named else line.strip())
        elif section and line:
            lines.append("  " + line.strip())
        elif line.endswith("::"):
            lines += [line[:-1], "", "```python"]
            is_code = True
        elif is_code:
            if lines[-1] != "```python" or line:
                lines.append(line[4:])
        else:
            lines.append(line)
    return "\n".join([*lines, "```"] if is_code else lines).strip()


def compiled() -> str:
    """`ata.Scheduler` and `ata.policies`."""
    cls = ata.Scheduler
    parts = [f"## `ata.Scheduler{cls.__text_signature__}`", markdown(cls.__doc__ or "")]
    public = [(name, member) for name, member in vars(cls).items() if not name.startswith("_")]
    # The extension lists its properties in no order.
    for name, member in sorted(public, key=lambda each: (not callable(each[1]), "" if callable(each[1]) else each[0])):
        signature = (
            str(inspect.signature(member)).replace("self, /, ", "").replace("self, /", "") if callable(member) else ""
        )
        parts += [f"### `Scheduler.{name}{signature}`", markdown(member.__doc__ or "")]
    return "\n\n".join([*parts, "## `ata.policies()`", markdown(ata.policies.__doc__ or "")])


def from_source(file: str, cls: str, module: str) -> str:
    """A class: its public methods that have a docstring of their own."""
    tree = ast.parse((SOURCES / file).read_text())
    node = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls)
    functions = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    created = next((each for each in functions if each.name == "__init__"), None)
    is_public = cls in ("Uneven", "Local", "UnevenCallback", "Problem")
    parts = [
        f"## `{module}.{cls}{_signature(created) if created and is_public else ''}`",
        markdown(ast.get_docstring(node) or ""),
    ]
    for function in functions:
        docstring = ast.get_docstring(function)
        if docstring and not docstring.startswith("As `") and function.name != "check_computed" and function.name[0] != "_":
            is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list)
            parts += [f"### `{cls}.{function.name}{'' if is_property else _signature(function)}`", markdown(docstring)]
    return "\n\n".join(parts)


def main_function() -> str:
    """`ata.main`."""
    return "\n\n".join(["## `ata.main(problem, arguments=None, **settings)`", markdown(ata.main.__doc__ or "")])


def _signature(function: ast.FunctionDef) -> str:
    """The parameters with their defaults, but without types."""
    arguments = function.args
    names = [each.arg for each in arguments.args[1:]]
    if arguments.kwonlyargs:
        names.append("*")
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
            names.append(f"{each.arg}={ast.unparse(default)}" if default else each.arg)
    return f"({', '.join(names)})"


def page() -> str:
    classes = [
        ("torch/problem.py", "Problem", "ata.torch"),
        ("jax.py", "Problem", "ata.jax"),
        ("problem.py", "Problem", "ata"),
        ("torch/shards.py", "Shards", "ata.torch"),
        ("torch/uneven.py", "Uneven", "ata.torch"),
        ("torch/local.py", "Local", "ata.torch"),
        ("torch/step.py", "Step", "ata.torch"),
        ("torch/report.py", "Report", "ata.torch.report"),
        ("torch/sampler.py", "ShareSampler", "ata.torch"),
        ("torch/transformers.py", "UnevenTrainer", "ata.torch"),
        ("torch/lightning.py", "UnevenCallback", "ata.torch.lightning"),
    ]
    sources = [from_source(*each) for each in classes]
    return "\n\n".join([HEAD.strip(), main_function(), *sources, compiled()]) + "\n"


def main() -> None:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.exit(f"{PAGE} is out of date: run python/reference.py")


if __name__ == "__main__":
    main()

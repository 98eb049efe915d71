//! `cargo xtask house`: counts what makes the sources large or hard to read, and fails beyond the bounds.
//!
//! A bound is the figure that was reached. Lower it when the figure falls; a commit that raises one says why.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::Failure;

/// A figure, and what it may be at most.
struct Count {
    name: &'static str,
    found: usize,
    most: usize,
}

/// A source file: its path from the root, and its text.
struct Source {
    path: String,
    text: String,
}

/// Folders that are not part of the product.
const NOT_PRODUCT: [&str; 4] = ["tools/", "research/", "xtask/", "fuzz/"];

/// Words with which no noun phrase and hardly any sentence begins, unless it has a verb.
const OPENERS: [&str; 26] = [
    "Of", "That", "Those", "As", "Also", "For", "With", "Without", "In", "By", "From", "To", "On", "At", "And", "But",
    "Or", "Which", "Who", "Whose", "When", "Where", "While", "Until", "After", "Before",
];

/// Verbs that doc comments use. A sentence with another one counts as a fragment: add the verb.
const VERBS: [&str; 60] = [
    "is", "are", "was", "were", "be", "been", "has", "have", "had", "does", "do", "can", "cannot", "may", "must",
    "should", "will", "would", "needs", "need", "takes", "take", "gets", "get", "gives", "makes", "make", "keeps",
    "holds", "sends", "send", "ends", "end", "begins", "begin", "says", "counts", "count", "waits", "wait", "goes",
    "comes", "come", "returns", "lets", "adds", "reads", "writes", "stays", "runs", "becomes", "costs", "shows",
    "works", "computes", "compute", "uses", "use", "starts", "stops",
];

pub(crate) fn check() -> Result<(), Failure> {
    let sources = sources(Path::new("."))?;
    let product: Vec<&Source> = sources.iter().filter(|source| is_product(&source.path)).collect();
    let lines = |of: &dyn Fn(&str) -> bool| {
        let files = sources.iter().filter(|source| of(&source.path) && !is_test(&source.path));
        files.map(|source| code(&source.text).lines().count()).sum()
    };
    let all: usize = sources.iter().map(|source| source.text.lines().count()).sum();
    let (own, research, tools) = (
        lines(&is_product),
        lines(&|path| path.starts_with("research/")),
        lines(&|path| !is_product(path) && !path.starts_with("research/")),
    );
    let longest =
        sources.iter().filter(|source| source.path.contains("src/")).map(|source| untested(&source.text)).max();
    let longest = longest.unwrap_or(0);
    let flags = untested_flags(Path::new("."), &sources)?;
    let counts = [
        Count { name: "lines of the product", found: own, most: 64_208 },
        Count { name: "lines of research", found: research, most: 4_821 },
        Count { name: "lines of tools", found: tools, most: 6_198 },
        Count { name: "lines of tests", found: all - own - research - tools, most: 33_723 },
        Count { name: "lines of the longest file", found: longest, most: 400 },
        Count { name: "type names that stand for two things", found: doubled(&product).len(), most: 3 },
        Count { name: "circles of imports", found: circles(&product).len(), most: 3 },
        Count { name: "doc comments that are fragments", found: fragments(&sources).len(), most: 12 },
        Count { name: "flags without a test", found: flags.len(), most: 2 },
        Count { name: "words of documentation", found: words(Path::new("docs"))?, most: 50_000 },
    ];
    for (name, files) in doubled(&product) {
        println!("{name} is defined in {}", files.join(" and "));
    }
    for circle in circles(&product) {
        println!("import each other: {circle}");
    }
    for fragment in fragments(&sources) {
        println!("fragment: {fragment}");
    }
    for flag in flags {
        println!("no test has {flag}");
    }
    println!("\n{:38}{:>8}{:>8}", "", "found", "most");
    for Count { name, found, most } in &counts {
        println!("{name:38}{found:>8}{most:>8}");
    }
    match counts.iter().find(|count| count.found > count.most) {
        Some(Count { name, found, most }) => Err(format!("{found} {name}: expected at most {most}")),
        None => Ok(()),
    }
}

fn is_product(path: &str) -> bool {
    !NOT_PRODUCT.iter().any(|folder| path.starts_with(folder))
}

/// Whether a file has nothing but tests, benchmarks or examples.
fn is_test(path: &str) -> bool {
    let folders = ["/tests/", "/benches/", "/examples/"];
    folders.iter().any(|folder| path.contains(folder)) || path.ends_with("/tests.rs")
}

/// A file's text before its unit tests.
fn code(text: &str) -> &str {
    let tests = ["\n#[cfg(test)]\nmod tests {", "\n#[cfg(test)]\npub(crate) mod tests {"];
    tests.iter().filter_map(|tests| text.find(tests)).min().map_or(text, |at| &text[..at])
}

/// Returns the number of lines before the first that is only for tests.
fn untested(text: &str) -> usize {
    text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

/// All Rust files below a folder, in order of their paths.
fn sources(root: &Path) -> Result<Vec<Source>, Failure> {
    let mut found = Vec::new();
    for path in files(root)? {
        let shown = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{shown}: {error}"))?;
            found.push(Source { path: shown, text });
        }
    }
    Ok(found)
}

/// The files below a folder, without what is built or hidden.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || ["target", "node_modules", "venv"].contains(&&*name) {
            continue;
        }
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

/// Returns the flags in the reference of the commands that no test, example or script has.
fn untested_flags(root: &Path, sources: &[Source]) -> Result<BTreeSet<String>, Failure> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let mut used = BTreeSet::new();
    for source in sources {
        let tests = if is_test(&source.path) { &source.text[..] } else { &source.text[code(&source.text).len()..] };
        used.extend(flags(tests));
    }
    for path in ["deploy", "python/tests", "tools"].map(|folder| files(&root.join(folder))) {
        for path in path?.iter().filter(|path| path.extension().is_some_and(|kind| kind == "sh" || kind == "py")) {
            used.extend(flags(&read(path)?));
        }
    }
    let reference = read(&root.join("docs/reference/cli.md"))?;
    Ok(flags(&reference).filter(|flag| !used.contains(flag)).collect())
}

/// Returns what begins with two hyphens and a letter.
fn flags(text: &str) -> impl Iterator<Item = String> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let after = text.match_indices("--").map(|(at, _)| &text[at + 2..]);
    let names = after.map(move |rest| &rest[..rest.find(|letter| !is_name(letter)).unwrap_or(rest.len())]);
    names.filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase())).map(|name| format!("--{name}"))
}

/// Names that two or more type definitions have, with their files.
fn doubled(sources: &[&Source]) -> BTreeMap<String, Vec<String>> {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test(&source.path)) {
        for line in code(&source.text).lines() {
            // Associated types are indented, and named by their trait.
            let is_indented = line.starts_with(' ');
            let line = line.trim_start();
            let line = line.strip_prefix("pub").map_or(line, |rest| {
                let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
                rest.trim_start()
            });
            let kinds = ["struct ", "enum ", "trait ", "union ", "type "];
            let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
            if is_indented && line.starts_with("type ") {
                continue;
            }
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            defined.entry(name).or_default().push(source.path.clone());
        }
    }
    defined.retain(|_, files| files.len() > 1);
    defined
}

/// Groups of a crate's top-level modules that import each other, directly or by way of others.
fn circles(sources: &[&Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test(&source.path)) {
        let Some((name, rest)) = source.path.split_once("/src/") else { continue };
        let module = rest.split('/').next().unwrap_or(rest).trim_end_matches(".rs");
        let imports = crates.entry(name).or_default().entry(module).or_default();
        for after in code(&source.text).split("crate::").skip(1) {
            let grouped = after.strip_prefix('{').and_then(|after| after.split_once("};")).map(|(group, _)| group);
            let paths: Vec<&str> = grouped.map_or_else(|| vec![after], |group| group.split(',').collect());
            imports.extend(paths.iter().map(|path| {
                path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
            }));
        }
    }
    let mut found = Vec::new();
    for (name, imports) in crates {
        let mut left: BTreeSet<&str> = imports.keys().copied().collect();
        while let Some(module) = left.pop_first() {
            let from = reachable(module, &imports);
            let circle: Vec<&str> = left
                .iter()
                .copied()
                .filter(|other| from.contains(other) && reachable(other, &imports).contains(module))
                .collect();
            if !circle.is_empty() {
                left.retain(|other| !circle.contains(other));
                found.push(format!("{name}: {module}, {}", circle.join(", ")));
            }
        }
    }
    found
}

/// The modules that a module imports, directly or by way of others.
fn reachable<'a>(module: &str, imports: &BTreeMap<&'a str, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let (mut found, mut next) = (BTreeSet::new(), vec![module]);
    while let Some(module) = next.pop() {
        for (other, _) in imports.iter().filter(|(other, _)| imports[module].contains(**other)) {
            if *other != module && found.insert(*other) {
                next.push(other);
            }
        }
    }
    found
}

/// Doc comments whose first sentence begins like the rest of one, and has no verb.
fn fragments(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for Source { path, text } in sources {
        let mut before = "";
        for (number, line) in (1..).zip(text.lines().map(str::trim_start)) {
            let is_first = !before.starts_with("///") && !before.starts_with("//!");
            before = line;
            let Some(doc) = line.strip_prefix("/// ").or(line.strip_prefix("//! ")).filter(|_| is_first) else {
                continue;
            };
            let sentence = doc.split(['.', ':']).next().unwrap_or(doc);
            let mut words = sentence.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty());
            let opens = words.next().is_some_and(|first| OPENERS.contains(&first));
            if opens && !words.any(|word| VERBS.contains(&word)) {
                found.push(format!("{path}:{number}: {doc}"));
            }
        }
    }
    found
}

/// Words of the Markdown files below a folder.
fn words(folder: &Path) -> Result<usize, Failure> {
    let mut all = 0;
    for path in files(folder)?.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        all += text.split_whitespace().count();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn types_of_one_name_are_found() {
        let [a, b] = [
            source("a/src/lib.rs", "pub(crate) struct Step;\nimpl X {\n    type State = u8;\n}\n"),
            source(
                "a/src/b.rs",
                "enum Step {}\ntrait T {\n    type State;\n}\n\n#[cfg(test)]\nmod tests {\nstruct T;\n}\n",
            ),
        ];
        let found = doubled(&[&a, &b]);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("Step".into(), vec![a.path.clone(), b.path.clone()])]);
    }

    #[test]
    fn modules_that_import_each_other_are_found() {
        let [a, b, c] = [
            source("x/src/a.rs", "use crate::b::B;\n"),
            source("x/src/b/mod.rs", "use crate::{c::C, d};\n"),
            source("x/src/c.rs", "fn f() { crate::a::g() }\n"),
        ];
        assert_eq!(circles(&[&a, &b, &c]), ["x: a, b, c"]);
        assert!(circles(&[&a, &b]).is_empty());
    }

    #[test]
    fn fragments_are_found() {
        let text = "/// Of the result.\nfn a() {}\n/// Of two workers, the faster one is asked.\nfn b() {}\n/// The size.\n/// For all.\nfn c() {}\n";
        assert_eq!(fragments(&[source("a.rs", text)]), ["a.rs:1: Of the result."]);
    }
}

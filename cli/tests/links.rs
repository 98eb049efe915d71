//! The documentation holds together: every relative link and anchor exists, every page is found from the README, and the book
//! has every page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Clicks from the README within which every page must be found.
const CLICKS: usize = 2;

/// The repository's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Every page by its path in the repository, as in `docs/how-to/gpus.md`.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut paths: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(PathBuf::from).into();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap().map(Result::unwrap) {
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// The lines outside blocks of code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut fence = None;
    page.lines().filter(move |line| {
        let ticks = line.trim_start().bytes().take_while(|byte| *byte == b'`').count();
        match fence {
            None if ticks >= 3 => fence = Some(ticks),
            Some(opened) if ticks >= opened => fence = None,
            None => return true,
            Some(_) => {}
        }
        false
    })
}

/// The targets of all links and images.
fn links(page: &str) -> Vec<String> {
    let prose: Vec<&str> = prose(page).collect();
    let mut found = Vec::new();
    for paragraph in prose.split(|line| line.trim().is_empty()) {
        // What is between backticks, which may be on two lines, is code.
        let text: String = paragraph.join("\n").split('`').step_by(2).collect();
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let definition = |line: &str| Some(line.strip_prefix('[')?.split_once("]: ")?.1.trim().to_owned());
        found.extend(inline.map(str::to_owned).chain(text.lines().filter_map(definition)));
    }
    found
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(page) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        // Of a link, its text.
        let text: String = heading.split("](").enumerate().map(|(at, part)| after_target(at, part)).collect();
        let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let again = (1..).map(|copy| format!("{anchor}-{copy}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

/// What follows the target of a link, if this is not the first part of a heading.
fn after_target(at: usize, part: &str) -> &str {
    if at == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) }
}

/// The file that a relative link means, and its anchor; `None` for other links. The file's path is empty if it is outside the
/// repository.
fn resolve(page: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor.to_owned())));
    let from = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    let mut path = PathBuf::new();
    for part in from.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if !path.pop() => return Some((PathBuf::new(), anchor)),
            _ => {}
        }
    }
    Some((path, anchor))
}

/// The pages that a page links to.
fn linked(page: &Path, pages: &BTreeMap<PathBuf, String>) -> BTreeSet<PathBuf> {
    let files = links(&pages[page]).into_iter().filter_map(|link| Some(resolve(page, &link)?.0));
    files.filter(|file| pages.contains_key(file)).collect()
}

#[test]
fn every_relative_link_and_anchor_exists() {
    let pages = pages();
    let mut broken = Vec::new();
    for (page, text) in &pages {
        for link in links(text) {
            let Some((file, anchor)) = resolve(page, &link) else { continue };
            if file.as_os_str().is_empty() || !root().join(&file).exists() {
                broken.push(format!("{}: {link}: there is no such file", page.display()));
            } else if let (Some(anchor), Some(target)) = (anchor, pages.get(&file))
                && !anchors(target).contains(&anchor)
            {
                broken.push(format!("{}: {link}: no heading has this anchor", page.display()));
            } else if page.starts_with("docs")
                && !file.starts_with("docs")
                && file.extension().is_some_and(|end| end == "md")
            {
                broken.push(format!("{}: {link}: the book would link to a page that it does not have", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_found_from_the_readme() {
    let pages = pages();
    let mut found = BTreeSet::from([PathBuf::from("README.md")]);
    for _ in 0..CLICKS {
        let next: Vec<PathBuf> = found.iter().flat_map(|page| linked(page, &pages)).collect();
        found.extend(next);
    }
    // The book's own table of contents is for mdBook.
    found.insert("docs/SUMMARY.md".into());
    let lost: Vec<_> = pages.keys().filter(|page| !found.contains(*page)).collect();
    assert!(lost.is_empty(), "more than {CLICKS} clicks from README.md: {lost:?}");
}

#[test]
fn the_book_has_every_page_once() {
    let pages = pages();
    let summary = Path::new("docs/SUMMARY.md");
    let chapters: Vec<PathBuf> =
        links(&pages[summary]).iter().filter_map(|link| Some(resolve(summary, link)?.0)).collect();
    let once: BTreeSet<_> = chapters.iter().collect();
    assert_eq!(once.len(), chapters.len(), "SUMMARY.md names a page twice");
    let all: BTreeSet<_> = pages.keys().filter(|page| page.starts_with("docs") && *page != summary).collect();
    let missing: Vec<_> = all.difference(&once).collect();
    let foreign: Vec<_> = once.difference(&all).collect();
    assert!(missing.is_empty() && foreign.is_empty(), "missing in SUMMARY.md: {missing:?}; not in docs/: {foreign:?}");
}

#[test]
fn what_a_link_and_an_anchor_are() {
    let page = "# A `b`, c & d\n[x](a.md#b) `[y](no.md)\n[y](no.md)`\n```sh\n# no\n[z](no.md)\n```\n\
        [w]: ../c.rs\n## [E](f.md) g\n# A b, c & d\n";
    assert_eq!(links(page), ["a.md#b", "f.md", "../c.rs"]);
    assert_eq!(anchors(page), BTreeSet::from(["a-b-c--d", "a-b-c--d-1", "e-g"].map(String::from)));
    let resolved = |link| resolve(Path::new("docs/how-to/p.md"), link);
    assert_eq!(resolved("../GPU.md#check"), Some(("docs/GPU.md".into(), Some("check".into()))));
    assert_eq!(resolved("#here"), Some(("docs/how-to/p.md".into(), Some("here".into()))));
    assert_eq!(resolved("../../../x"), Some((PathBuf::new(), None)));
    assert_eq!(resolved("https://example.org/a.md"), None);
}

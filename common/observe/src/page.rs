//! The HTML page, assembled from its parts. It loads nothing from other servers.

use std::sync::OnceLock;

use serde::Serialize;

use crate::snapshot::Snapshot;

const SKELETON: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPTS: [&str; 6] = [
    include_str!("../assets/tools.js"),
    include_str!("../assets/state.js"),
    include_str!("../assets/chart.js"),
    include_str!("../assets/heat.js"),
    include_str!("../assets/workers.js"),
    include_str!("../assets/page.js"),
];

/// The form that asks for the status secret.
pub(crate) const LOGIN: &str = include_str!("../assets/login.html");

/// The data that the page starts with.
#[derive(Serialize)]
struct PageRuns<'a> {
    /// Whether the server sends more data.
    live: bool,
    messages: &'a [Snapshot],
}

/// Returns the page that gets its data from its server.
pub(crate) fn live() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| page("ata", &PageRuns { live: true, messages: &[] }))
}

/// Returns a page of these runs that needs no server: `report.html`.
pub fn report(title: &str, runs: &[Snapshot]) -> String {
    page(title, &PageRuns { live: false, messages: runs })
}

fn page(title: &str, runs: &PageRuns<'_>) -> String {
    let runs = serde_json::to_string(runs).expect("names and numbers can be written");
    // Within a script element, only "<" can end it.
    let runs = runs.replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let mut page = String::new();
    let mut rest = SKELETON;
    for (mark, text) in
        [("<!--TITLE-->", title.as_str()), ("/*STYLE*/", STYLE), ("/*RUNS*/", &runs), ("/*SCRIPT*/", &SCRIPTS.concat())]
    {
        let (before, after) = rest.split_once(mark).expect("the skeleton has each mark once, in this order");
        page += before;
        page += text;
        rest = after;
    }
    page + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests as testing;

    /// Names come from workers, and run IDs from folders, so neither is trusted.
    #[test]
    fn names_cannot_become_part_of_the_page() {
        let mut state = testing::begun("uta", 4);
        state.apply(&ata_record::RunEvent::Join {
            time_s: 0.0,
            worker: ata_types::WorkerId::from_slot(0),
            name: "</script><script>alert(1)</script>".into(),
            device: "<!--".into(),
            machine: String::new(),
        });
        let page = report("a </title> & b", &[Snapshot::of(&state, &[])]);
        assert!(!page.contains("alert(1)</script>") && !page.contains("a </title>"));
        assert!(page.contains("<title>a &lt;/title> &amp; b"), "the title is there");
        assert!(page.contains("\\u003c/script>"));
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = live();
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            let found = page.match_indices(outside).map(|(at, _)| &page[at..(at + 60).min(page.len())]);
            let found: Vec<&str> = found.filter(|text| !text.contains("www.w3.org/2000/svg")).collect();
            assert!(found.is_empty(), "{outside}: {found:?}");
        }
    }
}

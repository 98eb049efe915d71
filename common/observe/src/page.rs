//! The page, put together from its parts: it loads nothing from anywhere.

use std::sync::OnceLock;

use serde::Serialize;

use crate::view::Message;

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

/// What the page starts with.
#[derive(Serialize)]
struct Runs<'a> {
    /// Whether there is more to come from the server.
    live: bool,
    messages: &'a [Message],
}

/// The page that asks its server for what it shows.
pub(crate) fn live() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| page("ata", &Runs { live: true, messages: &[] }))
}

/// A page that shows these runs as they are, and needs no server: `report.html`.
pub fn report(title: &str, runs: &[Message]) -> String {
    page(title, &Runs { live: false, messages: runs })
}

fn page(title: &str, runs: &Runs<'_>) -> String {
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
    use crate::testing;
    use crate::view::Cursor;

    /// Names come from workers, and run ids from folders: neither may add to the page.
    #[test]
    fn what_is_shown_cannot_become_a_part_of_the_page() {
        let mut view = testing::begun("uta", 4);
        view.apply(&ata_record::RunEvent::Join {
            time_s: 0.0,
            worker: ata_types::WorkerId::from_slot(0),
            name: "</script><script>alert(1)</script>".into(),
            device: "<!--".into(),
        });
        let page = report("a </title> & b", &[view.message(0, &mut Cursor::default(), &[])]);
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

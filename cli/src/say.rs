//! Messages on standard error, and the form of all that this process writes.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use serde_json::json;

use crate::escape::JsonLines;

/// Whether each line that this process writes is a JSON object.
static IS_JSON: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

pub(crate) fn set_json(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
    if is_json {
        std::panic::set_hook(Box::new(|panic| say("ERROR", format_args!("{panic}"))));
    }
}

/// Writes a message of a level to standard error, as text or, with `--log-format json`, like the log.
pub fn say(level: &str, message: std::fmt::Arguments<'_>) {
    let mut stderr = std::io::stderr();
    // A message that cannot be written is lost.
    drop(if is_json() {
        #[expect(clippy::disallowed_methods, reason = "it is displayed")]
        let timestamp = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let line = json!({ "timestamp": timestamp, "level": level, "message": message.to_string() });
        JsonLines(stderr).write_all(format!("{line}\n").as_bytes())
    } else {
        writeln!(stderr, "{message}")
    });
}

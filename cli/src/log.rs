//! The log on standard error.

use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal, stderr};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::args::LogFormat;
use crate::escape::{JsonLines, escaped};
use crate::failure::Failure;
use crate::say::{is_json, set_json};

/// Chooses the form of the log before the command line is parsed, because its errors have that form, too.
pub(crate) fn choose_form(command_line: &[OsString]) {
    let mut form = std::env::var("ATA_LOG_FORMAT").unwrap_or_default();
    let mut words = command_line.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match word.strip_prefix("--log-format") {
            Some("") => form = words.next().unwrap_or_default().into_owned(),
            Some(value) => form = value.trim_start_matches('=').into(),
            None => {}
        }
    }
    set_json(form == "json");
}

/// Starts the log with the levels in `directives`.
pub(crate) fn start(directives: &str, format: LogFormat) -> Result<(), Failure> {
    set_json(format == LogFormat::Json);
    let filter = EnvFilter::try_new(directives).map_err(|error| {
        Failure::usage(format!("--log '{directives}': {error}; expected error, warn, info or debug"))
    })?;
    let log = tracing_subscriber::fmt::layer().with_target(false).with_ansi(stderr().is_terminal());
    let log = if is_json() {
        log.json().flatten_event(true).with_writer(|| JsonLines(stderr())).boxed()
    } else {
        log.fmt_fields(EscapedFields).with_writer(stderr).boxed()
    };
    Registry::default().with(filter).with(log).try_init().map_err(Failure::internal)
}

/// Writes the message and `name=value` on one line, escaped: `tracing-subscriber` lets newlines and bidirectional controls through.
struct EscapedFields;

impl<'writer> FormatFields<'writer> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut line = FieldsLine { writer, separator: "", written: Ok(()) };
        fields.record(&mut line);
        line.written
    }
}

struct FieldsLine<'writer> {
    writer: Writer<'writer>,
    separator: &'static str,
    written: fmt::Result,
}

impl Visit for FieldsLine<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // The fields of the crate `log` are already in the metadata.
        if self.written.is_err() || field.name().starts_with("log.") {
            return;
        }
        let (text, separator) = (format!("{value:?}"), std::mem::replace(&mut self.separator, " "));
        self.written = match field.name() {
            "message" => write!(self.writer, "{separator}{}", escaped(&text)),
            name => write!(self.writer, "{separator}{name}={}", escaped(&text)),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The test starts itself as another process, because the hook is that of the whole process.
    #[test]
    fn a_panic_is_a_line_of_json() {
        if std::env::var_os("PANICS").is_some() {
            choose_form(&["ata", "up", "--log-format", "json"].map(OsString::from));
            panic!("in two\nlines");
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output =
            command.args(["--exact", "log::tests::a_panic_is_a_line_of_json"]).env("PANICS", "").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let line: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        assert!(line["level"] == "ERROR" && line["message"].as_str().unwrap().ends_with("in two\nlines"), "{said}");
    }
}

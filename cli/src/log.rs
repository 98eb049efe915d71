//! The log on standard error.

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

/// Starts the log with the levels in `directives`.
pub(crate) fn start(directives: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(directives).map_err(|error| {
        Failure::usage(format!("--log '{directives}': {error}; expected error, warn, info or debug"))
    })?;
    let log = tracing_subscriber::fmt::layer().with_target(false).with_ansi(stderr().is_terminal());
    let log = match format {
        LogFormat::Text => log.fmt_fields(EscapedFields).with_writer(stderr).boxed(),
        LogFormat::Json => log.json().flatten_event(true).with_writer(|| JsonLines(stderr())).boxed(),
    };
    Registry::default().with(filter).with(log).try_init().map_err(Failure::internal)
}

/// Writes the message and `name=value`, all on one line and without terminal control characters. The formatter of
/// `tracing-subscriber` lets newlines and bidirectional controls through.
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

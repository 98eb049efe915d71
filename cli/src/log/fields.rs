//! The fields of a log line, which may quote a worker.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

use crate::escape::escaped;

/// Writes the message and `name=value`, all on one line and without terminal control characters. The formatter of
/// `tracing-subscriber` lets newlines and bidirectional controls through.
pub(super) struct EscapedFields;

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

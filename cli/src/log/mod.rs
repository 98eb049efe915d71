//! The log on standard error.
//!
//! # Layout
//! - this file: levels and formats
//! - `fields`: the content of log lines

mod fields;

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::args::LogFormat;
use crate::escape::JsonLines;
use crate::failure::Failure;
use fields::EscapedFields;

/// Starts the log with the levels in `directives`.
pub(crate) fn start(directives: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(directives).map_err(|error| {
        Failure::usage(format!("--log '{directives}': {error}; expected error, warn, info or debug"))
    })?;
    Registry::default().with(filter).with(log(format, io::stderr)).try_init().map_err(Failure::internal)
}

fn log<S, W>(format: LogFormat, writer: impl Fn() -> W + Send + Sync + 'static) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: io::Write + 'static,
{
    let log = tracing_subscriber::fmt::layer().with_target(false).with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Text => log.fmt_fields(EscapedFields).with_writer(writer).boxed(),
        LogFormat::Json => log.json().flatten_event(true).with_writer(move || JsonLines(writer())).boxed(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The fields are a worker's name and the reason of its failure, as the coordinator logs them.
    #[test]
    fn a_line_is_a_line_whatever_a_worker_says() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let (written, evil) = (Written::default(), "\x1b[2J\u{9b}1m\u{202e}\nERROR all is lost");
            let writer = written.clone();
            let subscriber = Registry::default().with(log(format, move || writer.clone()));
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(worker = 3, reason = evil, device = %evil, "refused: {evil}");
            });
            let line = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            let (line, end) = line.split_at(line.len() - 1);
            assert_eq!(end, "\n");
            assert!(line.contains("refused: ") && line.contains("worker") && line.contains("all is lost"), "{line}");
            assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
        }
    }
}

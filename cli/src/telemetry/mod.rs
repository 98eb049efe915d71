//! The log on standard error and, if there is a collector, the spans of iterations.
//!
//! # Layout
//! - here: the log, and the refusal of `--otlp` in a build without that feature
//! - `fields`: the content of its lines
//! - `otlp`: the only place that names OpenTelemetry

mod fields;
#[cfg(feature = "otlp")]
mod otlp;

use std::io::{self, IsTerminal};

use ata_wire::SpanLinks;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::args::LogFormat;
use crate::failure::Failure;
use crate::output::JsonLines;
use fields::EscapedFields;

/// Where spans go, and under which names.
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "only the URL is named when it is refused"))]
pub(crate) struct Collector<'a> {
    /// Its URL, from `--otlp`.
    pub(crate) url: &'a str,
    /// The service name: the program's role in a run.
    pub(crate) service: &'static str,
    /// Distinguishes processes with the same service name.
    pub(crate) instance: String,
}

/// Sends the last spans when it is dropped.
#[must_use]
pub(crate) struct Telemetry {
    #[cfg(feature = "otlp")]
    _exporter: Option<otlp::Exporter>,
}

/// Starts the log, with the levels that `directives` names, and the exporter of spans.
pub(crate) fn start(
    directives: &str,
    format: LogFormat,
    collector: Option<&Collector<'_>>,
) -> Result<Telemetry, Failure> {
    let filter = EnvFilter::try_new(directives).map_err(|error| {
        Failure::usage(format!("--log '{directives}': {error}; expected error, warn, info or debug"))
    })?;
    if let Some(collector) = collector {
        return with_spans(filter, format, collector);
    }
    Registry::default().with(filter).with(log(format, io::stderr)).try_init().map_err(Failure::internal)?;
    Ok(Telemetry {
        #[cfg(feature = "otlp")]
        _exporter: None,
    })
}

#[cfg(feature = "otlp")]
fn with_spans(filter: EnvFilter, format: LogFormat, collector: &Collector<'_>) -> Result<Telemetry, Failure> {
    let (exporter, spans) = otlp::start(collector)?;
    // Each with a filter of its own: the log does not show spans, and not all that is logged is sent.
    let log = log(format, io::stderr).with_filter(filter);
    Registry::default().with(log).with(spans).try_init().map_err(Failure::internal)?;
    Ok(Telemetry { _exporter: Some(exporter) })
}

#[cfg(not(feature = "otlp"))]
fn with_spans(_: EnvFilter, _: LogFormat, collector: &Collector<'_>) -> Result<Telemetry, Failure> {
    let url = collector.url;
    Err(Failure::usage(format!("--otlp {url}: this build of ata sends no traces; build it with --features otlp")))
}

/// Links the spans of this process to their parents in other processes.
pub(crate) fn span_links() -> SpanLinks {
    #[cfg(feature = "otlp")]
    return otlp::span_links();
    #[cfg(not(feature = "otlp"))]
    SpanLinks::default()
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

    /// A worker's name and the reason of its failure, as the coordinator logs them.
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

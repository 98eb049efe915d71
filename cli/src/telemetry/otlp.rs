//! Spans to an OpenTelemetry collector, over gRPC.
//!
//! A run never waits for the collector. Finished spans wait in a bounded queue for the thread that sends them; if it is full,
//! they are dropped. The variables of OpenTelemetry's specification set the rest: `OTEL_TRACES_SAMPLER`, `OTEL_BSP_SCHEDULE_DELAY`,
//! `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_EXPORTER_OTLP_HEADERS` and so on.

use std::num::{NonZeroU64, NonZeroU128};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ata_wire::{SpanLinks, TRACE_TARGET, TraceContext};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{RetryPolicy, SpanExporter as OtlpExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::{Builder, Runtime};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use super::Collector;
use crate::failure::Failure;

/// Time that the last spans may take at the end of the program: longer than a round trip to anywhere, and short for a user.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time that sending a batch of spans may take. Other spans wait in the queue meanwhile.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends spans until it is dropped.
pub(super) struct Exporter {
    provider: SdkTracerProvider,
    /// Serves the connection. It is separate from the program's own, which is over before the last spans are sent, and whose
    /// only thread, in a worker, must not wait for them.
    runtime: Option<Runtime>,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // Spans that cannot be sent are lost, which was logged if it was not for the end's sake.
        drop(self.provider.shutdown_with_timeout(GOODBYE_TIMEOUT));
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts to send spans, and returns what collects them.
pub(super) fn start<S>(collector: &Collector<'_>) -> Result<(Exporter, impl Layer<S> + use<S>), Failure>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let url = collector.url;
    if !url.starts_with("http://") {
        let expected =
            "expected http://HOST:PORT, the gRPC port (4317) of a collector on this machine or a trusted network";
        return Err(Failure::usage(format!("--otlp {url}: {expected}")));
    }
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("otlp").enable_all().build();
    let runtime = runtime.map_err(Failure::internal)?;
    let exporter = {
        let _entered = runtime.enter();
        OtlpExporter::builder()
            .with_tonic()
            .with_endpoint(url)
            .with_timeout(EXPORT_TIMEOUT)
            // A batch that is tried again holds up the end.
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|error| Failure::usage(format!("--otlp {url}: {error}")))?
    };
    let resource = Resource::builder()
        .with_service_name(collector.service)
        .with_attribute(KeyValue::new("service.instance.id", collector.instance.clone()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let exporter = Reporting { exporter, url: url.to_owned(), fails: AtomicBool::new(false) };
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("ata"))
        .with_location(false)
        .with_target(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target(TRACE_TARGET, LevelFilter::DEBUG));
    Ok((Exporter { provider, runtime: Some(runtime) }, spans))
}

/// Logs when spans cannot be sent, and when they can again.
#[derive(Debug)]
struct Reporting {
    exporter: OtlpExporter,
    url: String,
    /// Whether the last batch was lost.
    fails: AtomicBool,
}

impl SpanExporter for Reporting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        let failed = self.fails.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !failed => {
                tracing::warn!("no spans reach {}, and the run goes on without: {error}", self.url);
            }
            Ok(()) if failed => tracing::warn!("spans reach {} again", self.url),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Links spans to their parents in other processes.
pub(super) fn span_links() -> SpanLinks {
    SpanLinks { context_of, continue_from }
}

fn context_of(span: &Span) -> Option<TraceContext> {
    let context = span.context();
    let span = context.span().span_context().clone();
    Some(TraceContext {
        trace: NonZeroU128::new(u128::from_be_bytes(span.trace_id().to_bytes()))?,
        span: NonZeroU64::new(u64::from_be_bytes(span.span_id().to_bytes()))?,
        is_sampled: span.is_sampled(),
    })
}

fn continue_from(span: &Span, parent: TraceContext) {
    let flags = if parent.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, id) = (TraceId::from(parent.trace.get()), SpanId::from(parent.span.get()));
    let parent = SpanContext::new(trace, id, flags, true, TraceState::default());
    // It fails for a span that nothing keeps.
    drop(span.set_parent(Context::new().with_remote_span_context(parent)));
}

//! Answers the probes of clients that measure their connection to the coordinator.

use std::sync::Arc;

use ata_net::Peer;
use ata_wire::limits::{MAX_PROBES, PROBE_ANSWER_PADDING, PROBE_TIMEOUT};
use ata_wire::proto::{ProbeAnswer, ProbeRequest, probe_answer::Kind};
use ata_wire::{ProbeIntake, ProbeSummary, RunSpec, padding};
use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};
use tokio_stream::Stream;
use tonic::{Status, Streaming};

#[derive(Debug)]
pub(crate) struct Probes {
    summary: ProbeSummary,
    places: Arc<Semaphore>,
    padding: Bytes,
}

impl Probes {
    pub(crate) fn new(run_id: String, run: RunSpec) -> Self {
        let summary = ProbeSummary { version: env!("CARGO_PKG_VERSION").into(), run_id, run, padding_bytes: 0 };
        Self { summary, places: Arc::new(Semaphore::new(MAX_PROBES)), padding: padding(PROBE_ANSWER_PADDING) }
    }

    /// Reads the requests, and starts to answer: with a summary, followed by padding. The answer occupies one of the limited places until it
    /// is dropped, which bounds the memory for peers that do not read.
    pub(crate) async fn answer(
        &self,
        mut requests: Streaming<ProbeRequest>,
        peer: Peer,
    ) -> Result<impl Stream<Item = Result<ProbeAnswer, Status>> + Send + use<>, Status> {
        let full = |_| Status::resource_exhausted("others are measuring already: try again in a few seconds");
        let place = self.places.clone().try_acquire_owned().map_err(full)?;
        let mut intake = ProbeIntake::default();
        while let Some(request) = requests.message().await? {
            intake.take(&request)?;
        }
        let (open, closed) = oneshot::channel::<()>();
        tokio::spawn(close_late(peer, closed));
        let summary = ProbeSummary { padding_bytes: intake.padding_bytes, ..self.summary.clone() };
        let summary = Kind::Summary(summary.into());
        let (mut left, padding) = (intake.answer_bytes(), self.padding.clone());
        let rest = std::iter::from_fn(move || {
            let length = left.min(padding.len() as u64);
            left -= length;
            (length > 0).then(|| Kind::Padding(padding.slice(..length as usize)))
        });
        Ok(tokio_stream::iter(std::iter::once(summary).chain(rest).map(move |kind| {
            let _held = (&place, &open);
            Ok(ProbeAnswer { kind: Some(kind) })
        })))
    }
}

/// Closes the connection if an answer is not read in time, since the answer cannot end itself.
async fn close_late(peer: Peer, closed: oneshot::Receiver<()>) {
    if tokio::time::timeout(PROBE_TIMEOUT, closed).await.is_err() {
        peer.close();
    }
}

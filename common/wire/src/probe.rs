//! Measures the link to a coordinator from the worker's side.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::timeout;
use tonic::Status;

use crate::Connection;
use crate::limits::{MAX_PROBE_BYTES, PROBE_REQUEST_PADDING, PROBE_TIMEOUT};
use crate::message::ProbeSummary;
use crate::proto::{ProbeAnswer, ProbeRequest, probe_answer};
use ata_net::limits::ANSWER_TIMEOUT;

/// Time added to the coordinator's own timeouts, in case it does not answer at all.
const MARGIN: Duration = Duration::from_secs(2);

/// The result of a probe.
#[derive(Clone, Debug)]
pub struct ProbeResult {
    /// The coordinator's answer.
    pub summary: ProbeSummary,
    /// Time from the first byte sent to the first byte of the answer: a round trip, and the transfer of the padding that was sent.
    pub until_answer: Duration,
    /// Time from the first byte of the answer to the last byte of its padding.
    pub until_end: Duration,
}

impl Connection {
    /// Sends `sent_bytes` and requests `asked_bytes` of padding, at most [`MAX_PROBE_BYTES`] of each.
    pub async fn probe(&self, sent_bytes: u64, asked_bytes: u64) -> Result<ProbeResult, Status> {
        let late = |_| Status::deadline_exceeded("the coordinator does not answer in time");
        let began = Instant::now();
        let call = async {
            let mut answer =
                self.coordinator().probe(tokio_stream::iter(requests(sent_bytes, asked_bytes))).await?.into_inner();
            let first = answer.message().await?.and_then(|first| first.kind);
            let Some(probe_answer::Kind::Summary(summary)) = first else {
                return Err(Status::invalid_argument("the answer does not begin with a summary"));
            };
            Ok((ProbeSummary::try_from(summary)?, answer))
        };
        let (summary, mut answer) = timeout(ANSWER_TIMEOUT + MARGIN, call).await.map_err(late)??;
        let until_answer = began.elapsed();
        let padding = async {
            let mut bytes = 0;
            while let Some(ProbeAnswer { kind }) = answer.message().await? {
                let Some(probe_answer::Kind::Padding(padding)) = kind else { break };
                bytes += padding.len() as u64;
                if bytes > asked_bytes {
                    break;
                }
            }
            Ok::<_, Status>(bytes)
        };
        let bytes = timeout(PROBE_TIMEOUT + MARGIN, padding).await.map_err(late)??;
        if (summary.padding_bytes, bytes) != (sent_bytes, asked_bytes) {
            let (found, asked) = (summary.padding_bytes, asked_bytes);
            let text = format!("{found} bytes of {sent_bytes} arrived there, and {bytes} of {asked} here");
            return Err(Status::data_loss(text));
        }
        Ok(ProbeResult { summary, until_answer, until_end: began.elapsed().saturating_sub(until_answer) })
    }
}

/// Returns the requests of a probe; at least one.
fn requests(sent_bytes: u64, answer_bytes: u64) -> impl Iterator<Item = ProbeRequest> {
    let padding = padding(PROBE_REQUEST_PADDING);
    let piece = PROBE_REQUEST_PADDING as u64;
    (0..sent_bytes.min(MAX_PROBE_BYTES).div_ceil(piece).max(1)).map(move |at| {
        let length = (sent_bytes - at * piece).min(piece);
        ProbeRequest { answer_bytes, padding: padding.slice(..length as usize) }
    })
}

/// Returns bytes that a network cannot compress: the upper bits of a linear congruential generator (Knuth's MMIX).
pub fn padding(bytes: usize) -> Bytes {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

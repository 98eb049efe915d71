//! The worker's side of a connection.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use ata_net::limits::ANSWER_TIMEOUT;
use ata_net::{AuthorizedChannel, ConnectError, Endpoint};
use ata_types::Iteration;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Method, Request, StatusCode, Version};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use crate::bulk::{GRPC, PARAMETERS, SUBMIT_GRADIENT};
use crate::limits::{MAX_PROBE_BYTES, MESSAGE_BYTES, PROBE_REQUEST_PADDING, PROBE_TIMEOUT};
use crate::message::{GradientHeader, ProbeSummary, Receipt, SessionToken};
use crate::proto::coordinator_client::CoordinatorClient;
use crate::proto::transfers_client::TransfersClient;
use crate::proto::{GradientReceipt, ParametersRequest, ProbeAnswer, ProbeRequest, probe_answer::Kind};
use crate::transfer::{CallBody, ParameterStream, ReceiveError, framed_gradient, prefixed};

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

/// Connects to the coordinator, or to another worker, without retrying.
pub async fn connect(endpoint: &Endpoint) -> Result<Connection, ConnectError> {
    endpoint.connect().await.map(Connection)
}

/// A connection to the coordinator, or to another worker; clones share it.
#[derive(Clone, Debug)]
pub struct Connection(AuthorizedChannel);

impl Connection {
    /// Returns the service for all calls except those that carry vectors.
    pub fn coordinator(&self) -> CoordinatorClient<AuthorizedChannel> {
        CoordinatorClient::new(self.0.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }

    /// Returns the service for vectors through generated code, for callers that build the parts themselves. It copies more.
    pub fn transfers(&self) -> TransfersClient<AuthorizedChannel> {
        TransfersClient::new(self.0.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }

    /// Opens the stream of a session's parameters or, with `evaluated`, of the one set of parameters after this evaluated step.
    pub async fn parameters(
        &self,
        session: SessionToken,
        evaluated: Option<Iteration>,
    ) -> Result<ParameterStream, Status> {
        let evaluated_step = evaluated.map_or(0, Iteration::number);
        let request = prefixed(&ParametersRequest { session: session.to_wire(), evaluated_step });
        self.call(PARAMETERS, tokio_stream::once(request)).await.map(ParameterStream::from_body)
    }

    /// Sends a sum of gradients. A chunk of 1 to [`MAX_CHUNK_BYTES`](crate::limits::MAX_CHUNK_BYTES) is taken from `chunks` only when the
    /// connection has room for it.
    pub async fn submit_gradient(
        &self,
        header: GradientHeader,
        chunks: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Receipt, ReceiveError> {
        let answer = self.call(SUBMIT_GRADIENT, framed_gradient(header.into(), chunks)).await?;
        Ok(CallBody::new(answer).message::<GradientReceipt>().await?.into())
    }

    /// Sends `sent_bytes` and requests `asked_bytes` of padding, at most [`MAX_PROBE_BYTES`] of each.
    pub async fn probe(&self, sent_bytes: u64, asked_bytes: u64) -> Result<ProbeResult, Status> {
        let late = |_| Status::deadline_exceeded("the coordinator does not answer in time");
        let began = Instant::now();
        let call = async {
            let mut answer =
                self.coordinator().probe(tokio_stream::iter(requests(sent_bytes, asked_bytes))).await?.into_inner();
            let first = answer.message().await?.and_then(|first| first.kind);
            let Some(Kind::Summary(summary)) = first else {
                return Err(Status::invalid_argument("the answer does not begin with a summary"));
            };
            Ok((ProbeSummary::try_from(summary)?, answer))
        };
        let (summary, mut answer) = timeout(ANSWER_TIMEOUT + MARGIN, call).await.map_err(late)??;
        let until_answer = began.elapsed();
        let padding = async {
            let mut bytes = 0;
            while bytes <= asked_bytes
                && let Some(ProbeAnswer { kind: Some(Kind::Padding(padding)) }) = answer.message().await?
            {
                bytes += padding.len() as u64;
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

    /// Sends a request of the service `Transfers`, and waits for the head of the answer.
    async fn call(&self, path: &str, body: impl Stream<Item = Bytes> + Send + 'static) -> Result<Body, Status> {
        let body = body.map(|bytes| Ok::<_, Status>(Frame::data(bytes)));
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(path)
            .header(CONTENT_TYPE, GRPC)
            .header(TE, HeaderValue::from_static("trailers"))
            .body(Body::new(StreamBody::new(body)))
            .expect("a valid request");
        let failed = |error: tonic::transport::Error| Status::from_error(Box::new(error));
        let mut channel = self.0.clone();
        poll_fn(|cx| channel.poll_ready(cx)).await.map_err(failed)?;
        let response = channel.call(request).await.map_err(failed)?;
        // A call that fails at once has its status in the first headers.
        match Status::from_header_map(response.headers()) {
            Some(status) if status.code() != Code::Ok => return Err(status),
            None if response.status() != StatusCode::OK => {
                return Err(Status::unavailable(format!("the answer has HTTP status {}", response.status())));
            }
            _ => {}
        }
        Ok(response.into_body())
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

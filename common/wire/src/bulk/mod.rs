//! The coordinator's side of the service `Transfers`, without generated code: bytes go from buffers to HTTP/2 frames and back.

mod parameter_body;

pub use parameter_body::Reader;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ata_types::Iteration;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use self::parameter_body::ParameterBody;
use crate::message::{Receipt, SessionToken};
use crate::proto::{GradientReceipt, ParametersRequest};
use crate::transfer::{CallBody, FramedSet, GradientUpload, prefixed};
use ata_net::Peer;
use ata_net::limits::ANSWER_TIMEOUT;

pub(crate) const PARAMETERS: &str = "/ata.v1.Transfers/Parameters";
pub(crate) const SUBMIT_GRADIENT: &str = "/ata.v1.Transfers/SubmitGradient";
pub(crate) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Answers the calls of the service `Transfers`.
pub trait Transfers: Clone + Send + Sync + 'static {
    /// Returns the sets of parameters for a session. When the stream ends, the run is over and the call ends with UNAVAILABLE. `reader`
    /// tracks how far the peer has read them.
    fn parameters(
        &self,
        session: SessionToken,
        reader: Reader,
    ) -> impl Future<Output = Result<impl Stream<Item = FramedSet> + Send + 'static, Status>> + Send;

    /// Returns the parameters after an evaluated step; there are none by default. `reader` tracks how far the peer has read them.
    fn evaluated_parameters(
        &self,
        _session: SessionToken,
        _step: Iteration,
        _reader: Reader,
    ) -> impl Future<Output = Result<FramedSet, Status>> + Send {
        std::future::ready(Err(Status::unimplemented("nothing is evaluated here")))
    }

    /// Receives a sum of gradients.
    fn submit_gradient(&self, upload: GradientUpload) -> impl Future<Output = Result<Receipt, Status>> + Send;
}

/// Routes the calls of the service `Transfers` to one service, and all other calls to another.
#[derive(Clone, Debug)]
pub struct TransferRouter<T, S> {
    transfers: T,
    others: S,
}

impl<T, S> TransferRouter<T, S> {
    /// Creates a router to `transfers` and `others`.
    pub fn new(transfers: T, others: S) -> Self {
        Self { transfers, others }
    }
}

impl<T> TransferRouter<T, NoService> {
    /// Creates a router to `transfers`; other calls are unimplemented.
    pub fn alone(transfers: T) -> Self {
        Self::new(transfers, NoService)
    }
}

/// A service without calls.
#[derive(Clone, Copy, Debug)]
pub struct NoService;

impl Service<Request<Body>> for NoService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        std::future::ready(Ok(Status::unimplemented("there is no such call").into_http()))
    }
}

type CallAnswer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<T, S> Service<Request<Body>> for TransferRouter<T, S>
where
    T: Transfers,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = CallAnswer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.others.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> CallAnswer {
        let path = request.uri().path();
        let is_parameters = path == PARAMETERS;
        if !is_parameters && path != SUBMIT_GRADIENT {
            return Box::pin(soon(self.others.call(request)));
        }
        let transfers = self.transfers.clone();
        Box::pin(async move {
            let content_type = request.headers().get(CONTENT_TYPE);
            if !content_type.is_some_and(|found| found.as_bytes().starts_with(GRPC.as_bytes())) {
                let mut response = Response::default();
                *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
                return Ok(response);
            }
            let (peer, body) = (Peer::of(request.extensions()), request.into_body());
            let or_status = |answer: Result<_, Status>| Ok(answer.unwrap_or_else(Status::into_http));
            if is_parameters {
                soon(async { or_status(parameters(transfers, body, peer).await) }).await
            } else {
                or_status(submit_gradient(transfers, body, peer).await)
            }
        })
    }
}

/// Waits at most [`ANSWER_TIMEOUT`] for the beginning of an answer.
async fn soon(answer: impl Future<Output = Result<Response<Body>, Infallible>>) -> Result<Response<Body>, Infallible> {
    let late = |_| Ok(Status::deadline_exceeded("the request did not arrive in time").into_http());
    tokio::time::timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(late)
}

async fn parameters(transfers: impl Transfers, body: Body, peer: Peer) -> Result<Response<Body>, Status> {
    let request: ParametersRequest = CallBody::new(body).message().await.map_err(Status::from)?;
    let (reader, session) = (Reader::new(peer), SessionToken::from_wire(&request.session)?);
    if request.evaluated_step == 0 {
        let sets = transfers.parameters(session, reader.clone()).await?;
        return Ok(response(ParameterBody::new(sets, reader)));
    }
    let set = transfers.evaluated_parameters(session, Iteration(request.evaluated_step), reader.clone()).await?;
    Ok(response(ParameterBody::new(tokio_stream::once(set), reader)))
}

async fn submit_gradient(transfers: impl Transfers, body: Body, peer: Peer) -> Result<Response<Body>, Status> {
    let receipt: GradientReceipt = transfers.submit_gradient(GradientUpload::from_body(body, peer)).await?.into();
    let frames = [Frame::data(prefixed(&receipt)), trailers(&Status::ok(""))];
    Ok(response(StreamBody::new(tokio_stream::iter(frames.map(Ok)))))
}

fn response<B>(body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// Returns the last frame of an answer.
fn trailers(status: &Status) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    // A text that is no valid header value is left out.
    drop(status.add_header(&mut trailers));
    Frame::trailers(trailers)
}

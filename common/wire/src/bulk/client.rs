//! The worker's side of the service `Transfers`.

use std::future::poll_fn;

use ata_types::Iteration;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Method, Request, StatusCode, Version};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use super::{GRPC, PARAMETERS, SUBMIT_GRADIENT};
use crate::message::{GradientHeader, Receipt, SessionToken};
use crate::proto::{GradientReceipt, ParametersRequest};
use crate::transfer::{CallBody, ParameterStream, ReceiveError, framed_gradient, prefixed};
use ata_net::AuthorizedChannel;

/// Opens the stream of a session's parameters, or of the parameters after an evaluated step.
pub(crate) async fn parameters(
    channel: AuthorizedChannel,
    session: SessionToken,
    evaluated: Option<Iteration>,
) -> Result<ParameterStream, Status> {
    let evaluated_step = evaluated.map_or(0, Iteration::number);
    let request = prefixed(&ParametersRequest { session: session.to_wire(), evaluated_step });
    let incoming = call(channel, PARAMETERS, tokio_stream::once(request)).await?;
    Ok(ParameterStream::new(incoming))
}

/// Sends a sum of gradients.
pub(crate) async fn submit_gradient(
    channel: AuthorizedChannel,
    header: GradientHeader,
    chunks: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Receipt, ReceiveError> {
    let mut incoming = call(channel, SUBMIT_GRADIENT, framed_gradient(header.into(), chunks)).await?;
    Ok(incoming.message::<GradientReceipt>().await?.into())
}

/// Sends a request and waits for the head of the answer.
async fn call(
    mut channel: AuthorizedChannel,
    path: &'static str,
    body: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<CallBody, Status> {
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
    Ok(CallBody::new(response.into_body()))
}

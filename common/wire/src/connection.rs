//! The worker's side of a connection.

use std::future::poll_fn;

use ata_net::{AuthorizedChannel, ConnectError, Endpoint};
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

use crate::bulk::{GRPC, PARAMETERS, SUBMIT_GRADIENT};
use crate::limits::MESSAGE_BYTES;
use crate::message::{GradientHeader, Receipt, SessionToken};
use crate::proto::coordinator_client::CoordinatorClient;
use crate::proto::transfers_client::TransfersClient;
use crate::proto::{GradientReceipt, ParametersRequest};
use crate::transfer::{CallBody, ParameterStream, ReceiveError, framed_gradient, prefixed};

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

    /// Returns the service for vectors, through generated code, for callers that build the parts themselves. It copies more than the
    /// methods below.
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

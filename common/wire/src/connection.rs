//! The worker's side of a connection.

use ata_net::{AuthorizedChannel, ConnectError, Endpoint};
use ata_types::Iteration;
use bytes::Bytes;
use tokio_stream::Stream;
use tonic::Status;

use crate::bulk;
use crate::limits::MESSAGE_BYTES;
use crate::message::{GradientHeader, Receipt, SessionToken};
use crate::proto::coordinator_client::CoordinatorClient;
use crate::proto::transfers_client::TransfersClient;
use crate::transfer::{ParameterStream, ReceiveError};

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

    /// Opens the stream of a session's parameters.
    pub async fn parameters(&self, session: SessionToken) -> Result<ParameterStream, Status> {
        bulk::parameters(self.0.clone(), session, None).await
    }

    /// Opens the stream of the parameters after an evaluated step, which has one set.
    pub async fn evaluated_parameters(
        &self,
        session: SessionToken,
        step: Iteration,
    ) -> Result<ParameterStream, Status> {
        bulk::parameters(self.0.clone(), session, Some(step)).await
    }

    /// Sends a sum of gradients. A chunk of 1 to [`MAX_CHUNK_BYTES`](crate::limits::MAX_CHUNK_BYTES) is taken from `chunks` only when the
    /// connection has room for it.
    pub async fn submit_gradient(
        &self,
        header: GradientHeader,
        chunks: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Receipt, ReceiveError> {
        bulk::submit_gradient(self.0.clone(), header, chunks).await
    }
}

//! The calls that carry tensors keep to the contract: each end works with generated code at the other.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ata_types::{Iteration, LeaseId};
use ata_wire::limits::CHUNK_BYTES;
use ata_wire::proto::transfers_server::{self, TransfersServer};
use ata_wire::proto::{GradientPart, GradientReceipt, ParametersRequest, TransferPart, gradient_part, transfer_part};
use ata_wire::{
    Connection, FramedTensor, GradientHeader, GradientUpload, LeaseTimes, Pool, Reader, Receipt, Security,
    SessionToken, TransferRouter, Transfers, chunks, connect, f32_bytes, gradient_parts, serve,
};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::{Code, Request, Response, Status, Streaming};
use tower_service::Service;

const SESSION: SessionToken = SessionToken([3; 16]);

/// More than a chunk, and not a whole number of them.
const VALUES: usize = CHUNK_BYTES / 4 + 1000;

fn values(first: u64) -> Vec<f32> {
    (0..VALUES as u64).map(|at| (first + at) as f32).collect()
}

fn header(lease: u64) -> GradientHeader {
    let times = LeaseTimes { busy_s: vec![0.5, 0.25], outlasted: 1 };
    GradientHeader { session: SESSION, lease: LeaseId(lease), iteration: Iteration(7), times, loss_sum: 2.0 }
}

/// Sends two sets, and wants the gradient that [`header`] and [`values`] make; lease 2 it never answers.
#[derive(Clone)]
struct Own;

impl Transfers for Own {
    async fn parameters(
        &self,
        session: SessionToken,
        _reader: Reader,
    ) -> Result<impl Stream<Item = FramedTensor> + Send + 'static, Status> {
        if session != SESSION {
            return Err(Status::unauthenticated("who is that?"));
        }
        Ok(tokio_stream::iter(
            [7, 8].map(|iteration| FramedTensor::new(Iteration(iteration), f32_bytes(values(iteration)))),
        ))
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        let found = GradientHeader::try_from(upload.header().await?)?;
        if found.lease == LeaseId(2) {
            std::future::pending::<()>().await;
        }
        assert_eq!(found, header(1));
        let received = upload.values(VALUES as u64, &Pool::default(), |_| ()).await?;
        assert!(received == values(1));
        Ok(Receipt::Refused { reason: "I only looked".into() })
    }
}

/// The same, with generated code.
struct Generated;

#[tonic::async_trait]
impl transfers_server::Transfers for Generated {
    type ParametersStream = Pin<Box<dyn Stream<Item = Result<TransferPart, Status>> + Send>>;

    async fn parameters(
        &self,
        request: Request<ParametersRequest>,
    ) -> Result<Response<Self::ParametersStream>, Status> {
        if request.into_inner().session != SESSION.to_wire() {
            return Err(Status::unauthenticated("who is that?"));
        }
        let kinds = [7, 8].into_iter().flat_map(|iteration| {
            let header = ata_wire::proto::TransferHeader { bytes: 4 * VALUES as u64, iteration };
            let chunks = chunks(f32_bytes(values(iteration))).map(transfer_part::Kind::Chunk);
            std::iter::once(transfer_part::Kind::Header(header)).chain(chunks)
        });
        let parts = kinds.map(|kind| Ok(TransferPart { kind: Some(kind) }));
        let end = std::iter::once(Err(Status::unavailable("the session is over")));
        Ok(Response::new(Box::pin(tokio_stream::iter(parts.chain(end).collect::<Vec<_>>()))))
    }

    async fn submit_gradient(
        &self,
        request: Request<Streaming<GradientPart>>,
    ) -> Result<Response<GradientReceipt>, Status> {
        let mut parts = request.into_inner();
        let Some(gradient_part::Kind::Header(found)) = parts.message().await?.and_then(|part| part.kind) else {
            return Err(Status::invalid_argument("no header"));
        };
        assert_eq!(GradientHeader::try_from(found)?, header(1));
        let mut data = Vec::new();
        while let Some(part) = parts.message().await? {
            let Some(gradient_part::Kind::Chunk(chunk)) = part.kind else { panic!("{part:?}") };
            assert_eq!(ata_wire::chunk(chunk.data.clone()), chunk, "its checksum");
            data.extend_from_slice(&chunk.data);
        }
        assert!(data == f32_bytes(values(1)));
        Ok(Response::new(Receipt::Refused { reason: "I only looked".into() }.into()))
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn served<S>(listener: TcpListener, service: S) -> impl Future<Output = ()>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    serve(listener, Arc::new(Security::Open), 1 << 30, service, std::future::pending())
}

async fn own() -> Connection {
    let (listener, address) = listen().await;
    tokio::spawn(served(listener, TransferRouter::alone(Own)));
    connect(&address.to_string().parse().unwrap()).await.unwrap()
}

/// What our client finds at either server.
async fn check_client(connection: &Connection) {
    let stranger = connection.parameters(SessionToken([0; 16]), VALUES as u64, Pool::default()).await;
    assert_eq!(stranger.unwrap_err().code(), Code::Unauthenticated);
    let mut sets = connection.parameters(SESSION, VALUES as u64, Pool::default()).await.unwrap();
    for expected in [7, 8] {
        let (iteration, received) = sets.next().await.unwrap();
        assert_eq!(iteration, Iteration(expected));
        assert!(received == values(iteration.number()));
    }
    assert_eq!(Status::from(sets.next().await.unwrap_err()).code(), Code::Unavailable);
    let receipt = connection.submit_gradient(header(1), values(1)).await.unwrap();
    assert_eq!(receipt, Receipt::Refused { reason: "I only looked".into() });
}

#[tokio::test]
async fn our_client_at_a_generated_server() {
    let (listener, address) = listen().await;
    let server = TransfersServer::new(Generated).max_decoding_message_size(ata_wire::limits::MESSAGE_BYTES);
    tokio::spawn(served(listener, server));
    check_client(&connect(&address.to_string().parse().unwrap()).await.unwrap()).await;
}

#[tokio::test]
async fn our_client_at_our_server() {
    check_client(&own().await).await;
}

#[tokio::test]
async fn a_generated_client_at_our_server() {
    let mut client = own().await.transfers();
    let receipt = client.submit_gradient(gradient_parts(header(1).into(), values(1))).await.unwrap();
    assert_eq!(Receipt::from(receipt.into_inner()), Receipt::Refused { reason: "I only looked".into() });

    let mut sets = client.parameters(ParametersRequest { session: SESSION.to_wire() }).await.unwrap().into_inner();
    let mut received = Vec::new();
    let status = loop {
        match sets.next().await {
            Some(Ok(part)) => received.push(part.kind.unwrap()),
            Some(Err(status)) => break status,
            None => panic!("the stream ended without a status"),
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
    let data: Vec<Bytes> = received
        .iter()
        .filter_map(|kind| match kind {
            transfer_part::Kind::Chunk(chunk) => Some(chunk.data.clone()),
            transfer_part::Kind::Header(_) => None,
        })
        .collect();
    assert_eq!(received.len(), 2 * (1 + VALUES.div_ceil(CHUNK_BYTES / 4)));
    assert!(data.concat() == [f32_bytes(values(7)), f32_bytes(values(8))].concat());
}

#[tokio::test]
async fn errors_are_those_of_generated_code() {
    let mut client = own().await.transfers();
    let bad = client.parameters(ParametersRequest { session: Bytes::from_static(b"short") }).await;
    assert_eq!(bad.unwrap_err().code(), Code::InvalidArgument);
    let no_header = gradient_parts(header(1).into(), values(1)).skip(1);
    assert_eq!(client.submit_gradient(no_header).await.unwrap_err().code(), Code::InvalidArgument);
    let empty = client.submit_gradient(tokio_stream::iter([GradientPart { kind: None }])).await;
    assert_eq!(empty.unwrap_err().code(), Code::InvalidArgument);
    let cut_short = gradient_parts(header(1).into(), values(1)).take(2);
    assert_eq!(client.submit_gradient(cut_short).await.unwrap_err().code(), Code::InvalidArgument);
    // The deadline that a client sets for a call that is never answered.
    let mut hanging = Request::new(gradient_parts(header(2).into(), values(1)));
    hanging.set_timeout(Duration::from_millis(50));
    let late = tokio::time::timeout(Duration::from_secs(20), client.submit_gradient(hanging)).await;
    assert!(late.expect("its deadline has passed").is_err());
    // Another service.
    let other = own().await.coordinator().data(ata_wire::proto::DataRequest::default()).await;
    assert_eq!(other.unwrap_err().code(), Code::Unimplemented);
}

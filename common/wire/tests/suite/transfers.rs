//! Tests that the calls that carry vectors keep to the contract: our server answers generated clients as it answers ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ata_net::limits::{CONNECTION_WINDOWS, MAX_UPLOADS};
use ata_net::{Security, SendAhead, serve};
use ata_types::{Iteration, VectorId};
use ata_wire::limits::MAX_CHUNK_BYTES;
use ata_wire::proto::{self, GradientPart, ParametersRequest, parameter_part};
use ata_wire::{
    Connection, FramedSet, GradientHeader, GradientUpload, ParameterPart, Reader, Receipt, SessionToken, SetHeader,
    SetProducer, TransferRouter, Transfers, chunk, connect, gradient_parts,
};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Status};

const SESSION: SessionToken = SessionToken([3; 16]);

/// A session whose second set is never complete.
const UNLUCKY: SessionToken = SessionToken([4; 16]);

const SIZES: [usize; 3] = [MAX_CHUNK_BYTES, MAX_CHUNK_BYTES, 1000];

fn vector(seed: u64) -> impl Iterator<Item = Bytes> + Send + 'static {
    SIZES.into_iter().map(move |size| (0..size as u64).map(|at| (seed + at) as u8).collect())
}

fn set_header(iteration: u64) -> SetHeader {
    let base = (iteration == 8).then_some(Iteration(7));
    SetHeader { iteration: Iteration(iteration), base, chunks: SIZES.len() as u64, ..SetHeader::default() }
}

fn header(vector: u64) -> GradientHeader {
    let (maxima, units) = (vec![0.5, 2.0], vec![-20, 3]);
    GradientHeader { session: SESSION, vector: VectorId(vector), maxima, units, ..GradientHeader::default() }
}

/// A server that sends two sets and expects the gradient of [`header`] and [`vector`]. It never answers vector 2.
#[derive(Clone)]
struct Own;

impl Transfers for Own {
    async fn parameters(
        &self,
        session: SessionToken,
        _reader: Reader,
    ) -> Result<impl Stream<Item = FramedSet> + Send + 'static, Status> {
        if session != SESSION && session != UNLUCKY {
            return Err(Status::unauthenticated("who is that?"));
        }
        let producers = [7, 8].map(|iteration| SetProducer::new(set_header(iteration)));
        let sets: Vec<FramedSet> = producers.iter().map(SetProducer::set).collect();
        std::thread::spawn(move || {
            for (mut producer, iteration) in producers.into_iter().zip([7, 8]) {
                let is_complete = session == SESSION || iteration == 7;
                vector(iteration).take(if is_complete { SIZES.len() } else { 1 }).for_each(|data| producer.push(data));
            }
        });
        Ok(tokio_stream::iter(sets))
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        let found = GradientHeader::try_from(upload.header().await?)?;
        if found.vector == VectorId(2) {
            std::future::pending::<()>().await;
        }
        assert_eq!(found, header(1));
        let (mut received, mut heard) = (Vec::new(), 0);
        while let Some(data) = upload.chunk(|bytes| heard += bytes).await? {
            received.push(data);
        }
        assert_eq!(heard, received.concat().len(), "every byte is counted once");
        if received.len() != SIZES.len() {
            return Err(Status::invalid_argument("a chunk is missing"));
        }
        assert!(received.into_iter().eq(vector(1)));
        Ok(Receipt::Refused { reason: "I only looked".into() })
    }
}

async fn at(transfers: impl Transfers) -> Connection {
    with_ahead(SendAhead::up_to(1 << 30), transfers).await
}

async fn with_ahead(ahead: SendAhead, transfers: impl Transfers) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let router = TransferRouter::alone(transfers);
    tokio::spawn(serve(listener, Arc::new(Security::Open), ahead, router, std::future::pending()));
    connect(&address.parse().unwrap()).await.unwrap()
}

#[tokio::test]
async fn our_client_at_our_server() {
    let connection = at(Own).await;
    let stranger = connection.parameters(SessionToken([0; 16]), None).await;
    assert_eq!(stranger.unwrap_err().code(), Code::Unauthenticated);
    for (session, received) in [(SESSION, SIZES.len()), (UNLUCKY, 1)] {
        let mut sets = connection.parameters(session, None).await.unwrap();
        for (iteration, received) in [(7, SIZES.len()), (8, received)] {
            assert_eq!(sets.next().await.unwrap(), ParameterPart::Set(set_header(iteration)));
            for (at, data) in vector(iteration).take(received).enumerate() {
                assert!(sets.next().await.unwrap() == ParameterPart::Chunk { at: at as u64, data });
            }
        }
        assert_eq!(Status::from(sets.next().await.unwrap_err()).code(), Code::Unavailable);
    }
    let receipt = connection.submit_gradient(header(1), tokio_stream::iter(vector(1))).await.unwrap();
    assert_eq!(receipt, Receipt::Refused { reason: "I only looked".into() });
}

#[tokio::test]
async fn a_generated_client_at_our_server() {
    let mut client = at(Own).await.transfers();
    let receipt = client.submit_gradient(gradient_parts(header(1).into(), vector(1))).await.unwrap();
    assert_eq!(Receipt::from(receipt.into_inner()), Receipt::Refused { reason: "I only looked".into() });

    let mut sets = client
        .parameters(ParametersRequest { session: SESSION.to_wire(), evaluated_step: 0 })
        .await
        .unwrap()
        .into_inner();
    for iteration in [7, 8] {
        let chunks = vector(iteration).map(|data| parameter_part::Kind::Chunk(chunk(data)));
        for expected in std::iter::once(parameter_part::Kind::Header(set_header(iteration).into())).chain(chunks) {
            assert!(sets.next().await.unwrap().unwrap().kind == Some(expected));
        }
    }
    assert_eq!(sets.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn errors_are_those_of_generated_code() {
    let mut client = at(Own).await.transfers();
    let bad = client.parameters(ParametersRequest { session: Bytes::from_static(b"short"), evaluated_step: 0 }).await;
    assert_eq!(bad.unwrap_err().code(), Code::InvalidArgument);
    let parts = || gradient_parts(header(1).into(), vector(1));
    assert_eq!(client.submit_gradient(parts().skip(1)).await.unwrap_err().code(), Code::InvalidArgument);
    let empty = client.submit_gradient(tokio_stream::iter([GradientPart { kind: None }])).await;
    assert_eq!(empty.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(client.submit_gradient(parts().take(2)).await.unwrap_err().code(), Code::InvalidArgument);
    // The client's deadline ends a call that is never answered.
    let mut hanging = Request::new(gradient_parts(header(2).into(), vector(1)));
    hanging.set_timeout(Duration::from_millis(50));
    let late = tokio::time::timeout(Duration::from_secs(20), client.submit_gradient(hanging)).await;
    assert!(late.expect("its deadline has passed").is_err());
    // A call of another service is unimplemented.
    let other = at(Own).await.coordinator().data(proto::DataRequest::default()).await;
    assert_eq!(other.unwrap_err().code(), Code::Unimplemented);
}

/// A server that, for each chunk it receives, checks how many its client has produced.
#[derive(Clone)]
struct Counting {
    produced: Arc<AtomicUsize>,
    window_bytes: usize,
}

impl Transfers for Counting {
    async fn parameters(
        &self,
        _session: SessionToken,
        _reader: Reader,
    ) -> Result<impl Stream<Item = FramedSet> + Send + 'static, Status> {
        Ok(tokio_stream::empty())
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        upload.header().await?;
        let mut received = 0;
        while upload.chunk(|_| ()).await?.is_some() {
            received += 1;
            let ahead = self.produced.load(Ordering::Relaxed) - received;
            // One more may wait at the sender, which sends the part of a chunk that the window has room for.
            assert!(ahead <= self.window_bytes / MAX_CHUNK_BYTES + 2, "{ahead} chunks are on their way");
        }
        Ok(Receipt::Accepted)
    }
}

#[tokio::test]
async fn chunks_are_produced_when_they_can_be_sent() {
    let largest = CONNECTION_WINDOWS[0] as usize / MAX_UPLOADS;
    let few = 2 * MAX_CHUNK_BYTES;
    let of_stream = SendAhead { stream_bytes: few as u32, ..SendAhead::up_to(1 << 30) };
    for (ahead, window_bytes) in [(SendAhead::up_to(1 << 30), largest), (of_stream, few)] {
        let produced = Arc::new(AtomicUsize::new(0));
        let connection = with_ahead(ahead, Counting { produced: produced.clone(), window_bytes }).await;
        let total = 4 * largest / MAX_CHUNK_BYTES;
        let data = Bytes::from(vec![1; MAX_CHUNK_BYTES]);
        let counted = produced.clone();
        let chunks = tokio_stream::iter((0..total).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            data.clone()
        }));
        assert_eq!(connection.submit_gradient(header(1), chunks).await.unwrap(), Receipt::Accepted);
        assert_eq!(produced.load(Ordering::Relaxed), total);
    }
}

//! Parameters and gradients over gRPC on loopback, against a TCP copy of the same bytes. Both end up in a new buffer.

use std::io::{Read, Write};
use std::net::{TcpListener as StdTcpListener, TcpStream};
use std::pin::Pin;
use std::time::{Duration, Instant};

use ata_wire::limits::CHUNK_BYTES;
use ata_wire::proto::coordinator_server::{Coordinator, CoordinatorServer};
use ata_wire::proto::{
    Chunk, CoordinatorMessage, DataRequest, GradientHeader, GradientPart, GradientReceipt, ParametersRequest,
    TransferPart, WorkerMessage,
};
use ata_wire::{
    Receipt, chunks, connect, f32_bytes, gradient_parts, incoming, receive_gradient, receive_gradient_header,
    receive_tensor, server_builder, transfer_parts,
};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::{Figure, median};
use crate::failure::Failure;

/// Values per tensor, and how often it is sent: 2.5 MB and 100 MB.
const SIZES: [(usize, usize); 2] = [(640_000, 101), (25_000_000, 9)];

pub(super) async fn measure() -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (values, times) in SIZES {
        figures.extend(measure_size(values, times).await?);
    }
    Ok(figures)
}

async fn measure_size(values: usize, times: usize) -> Result<[Figure; 2], Failure> {
    let tensor: Vec<f32> = (0..values).map(|at| at as f32).collect();
    let bytes = values * 4;
    let expected = values as u64;

    // Separate threads, as another process would have.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failure::internal)?;
    let bound = runtime.spawn(TcpListener::bind("127.0.0.1:0")).await.map_err(Failure::internal)?;
    let listener = bound.map_err(Failure::internal)?;
    let address = listener.local_addr().map_err(Failure::internal)?;
    let (received, mut kept) = mpsc::unbounded_channel();
    let served = Served { bytes: bytes as u64, chunks: chunks(f32_bytes(tensor.clone())).collect(), received };
    runtime.spawn(async move {
        server_builder().serve_with_incoming(CoordinatorServer::new(served), incoming(listener)).await
    });
    let connection = connect(&format!("http://{address}").parse()?).await?;
    let mut tcp = TcpCopy::start(bytes).map_err(Failure::internal)?;

    let (mut down, mut up, mut copy) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up both sides.
    for round in 0..=times {
        let started = Instant::now();
        let request = ParametersRequest { session: bytes::Bytes::new(), iteration: 1 };
        let mut parts = connection.clone().parameters(request).await.map_err(Failure::internal)?.into_inner();
        let received = receive_tensor(&mut parts, expected).await.map_err(Failure::internal)?;
        let downloaded = started.elapsed();
        drop(received);

        let sent = tensor.clone();
        // The buffer received last time is freed here, outside the measured time.
        drop(kept.try_recv());
        let started = Instant::now();
        let parts = gradient_parts(GradientHeader::default(), sent);
        connection.clone().submit_gradient(parts).await.map_err(Failure::internal)?;
        let uploaded = started.elapsed();

        let copied = tokio::task::block_in_place(|| tcp.copy()).map_err(Failure::internal)?;
        if round > 0 {
            down.push(downloaded);
            up.push(uploaded);
            copy.push(copied);
        }
    }
    runtime.shutdown_background();
    let copy = median(copy);
    let figure = |what: &str, times| {
        let name = format!("{what} of {:.1} MB through gRPC", bytes as f64 / 1e6);
        Figure::new(name, median(times), "TCP copy into a new buffer", copy)
    };
    Ok([figure("parameters", down), figure("gradient", up)])
}

/// A coordinator that does nothing but transfers.
struct Served {
    bytes: u64,
    chunks: Vec<Chunk>,
    received: mpsc::UnboundedSender<Vec<f32>>,
}

type Parts = Pin<Box<dyn Stream<Item = Result<TransferPart, Status>> + Send>>;

#[tonic::async_trait]
impl Coordinator for Served {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<CoordinatorMessage, Status>> + Send>>;
    type ParametersStream = Parts;
    type DataStream = Parts;

    async fn session(
        &self,
        _request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        Err(Status::unimplemented("this benchmark serves only transfers"))
    }

    async fn parameters(&self, _request: Request<ParametersRequest>) -> Result<Response<Parts>, Status> {
        let parts = transfer_parts(self.bytes, self.chunks.clone());
        Ok(Response::new(Box::pin(tokio_stream::iter(parts.map(Ok).collect::<Vec<_>>()))))
    }

    async fn submit_gradient(
        &self,
        request: Request<Streaming<GradientPart>>,
    ) -> Result<Response<GradientReceipt>, Status> {
        let mut parts = request.into_inner();
        let failed = |error: ata_wire::ReceiveError| Status::internal(error.to_string());
        receive_gradient_header(&mut parts).await.map_err(failed)?;
        let gradient = receive_gradient(&mut parts, self.bytes / 4, || ()).await.map_err(failed)?;
        // The receiver is gone only when the benchmark is over.
        drop(self.received.send(gradient));
        Ok(Response::new(Receipt::Accepted.into()))
    }

    async fn data(&self, _request: Request<DataRequest>) -> Result<Response<Parts>, Status> {
        Err(Status::unimplemented("this benchmark serves only transfers"))
    }
}

/// A peer on loopback that answers each byte with a buffer.
struct TcpCopy {
    stream: TcpStream,
    bytes: usize,
}

impl TcpCopy {
    fn start(bytes: usize) -> std::io::Result<Self> {
        let listener = StdTcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (mut peer, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        peer.set_nodelay(true)?;
        std::thread::spawn(move || {
            let buffer = vec![7; bytes];
            // Ends when the other side is dropped.
            while peer.read_exact(&mut [0]).is_ok() {
                if buffer.chunks(CHUNK_BYTES).any(|chunk| peer.write_all(chunk).is_err()) {
                    break;
                }
            }
        });
        Ok(Self { stream, bytes })
    }

    fn copy(&mut self) -> std::io::Result<Duration> {
        let started = Instant::now();
        self.stream.write_all(&[1])?;
        let mut received = vec![0; self.bytes];
        self.stream.read_exact(&mut received)?;
        Ok(started.elapsed())
    }
}

//! Parameters and gradients over gRPC on loopback, against a TCP copy of the same bytes. Both end up in a new buffer.

use std::io::{Read, Write};
use std::net::{TcpListener as StdTcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ata_types::{Iteration, LeaseId};
use ata_wire::{
    Connection, Endpoint, FramedTensor, GradientHeader, GradientUpload, LeaseTimes, ParameterStream, Pool, Reader,
    Receipt, SessionToken, TransferRouter, Transfers, connect, serve,
};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::protection::Protection;
use crate::{BenchError, Figure, median};

/// Values per tensor, and how often it is sent: 2.6 MB and 100 MB.
const SIZES: [(usize, usize); 2] = [(640_000, 101), (25_000_000, 9)];

/// Bytes that the reference writes at a time.
const WRITE_BYTES: usize = 1 << 18;

const SESSION: SessionToken = SessionToken([0; 16]);

pub(crate) async fn measure() -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for (values, times) in SIZES {
        figures.extend(measure_size(values, times, Protection::none()).await?);
        figures.extend(measure_size(values, times, Protection::tls()?).await?);
    }
    Ok(figures)
}

async fn measure_size(values: usize, times: usize, protection: Protection) -> Result<[Figure; 2], BenchError> {
    let tensor: Vec<f32> = (0..values).map(|at| at as f32).collect();
    let bytes = values * 4;
    let set = FramedTensor::new(Iteration(1), ata_wire::f32_bytes(tensor.clone()));

    // Separate threads, as another process would have.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(BenchError::other)?;
    let bound = runtime.spawn(TcpListener::bind("127.0.0.1:0")).await.map_err(BenchError::other)?;
    let listener = bound.map_err(BenchError::other)?;
    let address = listener.local_addr().map_err(BenchError::other)?;
    let (sets, sent) = mpsc::channel(1);
    let endless = Endless { values: values as u64, sets: Arc::new(Mutex::new(Some(sent))), pool: Pool::default() };
    let service = TransferRouter::alone(endless);
    runtime.spawn(serve(listener, protection.security.clone(), 1 << 30, service, std::future::pending()));
    let mut client = Client::connect(&protection.endpoint(address)?, values as u64).await?;
    let mut tcp = TcpCopy::start(bytes).map_err(BenchError::other)?;

    let (mut down, mut up, mut copy) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up both sides.
    for round in 0..=times {
        let started = Instant::now();
        sets.send(set.clone()).await.map_err(BenchError::other)?;
        let downloaded = client.download(started).await?;
        let uploaded = client.upload(tensor.clone()).await?;
        let copied = tokio::task::block_in_place(|| tcp.copy()).map_err(BenchError::other)?;
        if round > 0 {
            down.push(downloaded);
            up.push(uploaded);
            copy.push(copied);
        }
    }
    runtime.shutdown_background();
    let copy = median(copy);
    let figure = |what: &str, times| {
        let name = format!("{what} of {:.1} MB through {}", bytes as f64 / 1e6, protection.name());
        Figure::new(name, median(times), "TCP copy into a new buffer", copy)
    };
    Ok([figure("parameters", down), figure("gradient", up)])
}

struct Client {
    connection: Connection,
    sets: ParameterStream,
    pool: Pool,
}

impl Client {
    async fn connect(endpoint: &Endpoint, values: u64) -> Result<Self, BenchError> {
        let connection = connect(endpoint).await?;
        let pool = Pool::default();
        let sets = connection.parameters(SESSION, values, pool.clone()).await.map_err(BenchError::other)?;
        Ok(Self { connection, sets, pool })
    }

    async fn download(&mut self, started: Instant) -> Result<Duration, BenchError> {
        let (_, received) = self.sets.next().await.map_err(BenchError::other)?;
        let took = started.elapsed();
        self.pool.give(received);
        Ok(took)
    }

    async fn upload(&mut self, gradient: Vec<f32>) -> Result<Duration, BenchError> {
        let times = LeaseTimes { busy_s: vec![0.0], outlasted: 0 };
        let (lease, iteration) = (LeaseId(1), Iteration(1));
        let header = GradientHeader { session: SESSION, lease, iteration, times, loss_sum: 0.0 };
        let started = Instant::now();
        self.connection.submit_gradient(header, gradient).await.map_err(BenchError::other)?;
        Ok(started.elapsed())
    }
}

/// A coordinator that does nothing but transfers.
#[derive(Clone)]
struct Endless {
    values: u64,
    /// What it sends, until it is asked for it.
    sets: Arc<Mutex<Option<mpsc::Receiver<FramedTensor>>>>,
    pool: Pool,
}

impl Transfers for Endless {
    async fn parameters(
        &self,
        _session: SessionToken,
        _reader: Reader,
    ) -> Result<impl Stream<Item = FramedTensor> + Send + 'static, Status> {
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner).take();
        sets.map(ReceiverStream::new).ok_or_else(|| Status::unavailable("they are being sent already"))
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        upload.header().await?;
        self.pool.give(upload.values(self.values, &self.pool, |_| ()).await?);
        Ok(Receipt::Accepted)
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
                if buffer.chunks(WRITE_BYTES).any(|chunk| peer.write_all(chunk).is_err()) {
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

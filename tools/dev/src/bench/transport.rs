//! Benchmarks transfers of parameters and of sums of gradients over gRPC on loopback against a TCP copy of the same
//! bytes into a new buffer.
//!
//! Both transfers are f32-exact and include the conversion from and to numbers. A thread copies a set of parameters chunk by chunk, each of
//! which is sent at once, and the receiver collects them in a vector of f32. A chunk of a sum is written as bytes when the connection has
//! room for it, and the receiver reads it into a vector of i32.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener as StdTcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ata::Failure;
use ata_net::{Endpoint, SendAhead, serve};
use ata_sums::{decode_parameters, decode_sums, encode_parameters, encode_sums};
use ata_types::{CHUNK_VALUES, Iteration, VectorId, WireFormat};
use ata_wire::{
    Connection, FramedSet, GradientHeader, GradientUpload, ParameterPart, ParameterStream, Reader, Receipt,
    SessionToken, SetHeader, SetProducer, TransferRouter, Transfers, connect,
};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::bench::protection::Protection;
use crate::bench::{Figure, median};

/// Values per vector (2.6 MB and 100 MB), and the number of transfers.
const SIZES: [(usize, usize); 2] = [(640_000, 101), (25_000_000, 9)];

/// The number of bytes that the reference writes at a time.
const WRITE_BYTES: usize = 1 << 18;

const SESSION: SessionToken = SessionToken([0; 16]);

pub(crate) async fn measure() -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (values, times) in SIZES {
        figures.extend(measure_size(values, times, Protection::none()).await?);
        figures.extend(measure_size(values, times, Protection::tls()?).await?);
    }
    Ok(figures)
}

async fn measure_size(values: usize, times: usize, protection: Protection) -> Result<[Figure; 2], Failure> {
    let parameters: Arc<Vec<f32>> = Arc::new((0..values).map(|at| at as f32).collect());
    let sums: Arc<Vec<i32>> = Arc::new((0..).take(values).collect());
    let bytes = values * 4;

    // The peer has its own threads, like a separate process.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failure::internal)?;
    let bound = runtime.spawn(TcpListener::bind("127.0.0.1:0")).await.map_err(Failure::internal)?;
    let listener = bound.map_err(Failure::internal)?;
    let address = listener.local_addr().map_err(Failure::internal)?;
    let (sets, sent) = mpsc::channel(1);
    let endless = Endless { values, sets: Arc::new(Mutex::new(Some(sent))) };
    let service = TransferRouter::alone(endless);
    let ahead = SendAhead::up_to(1 << 30);
    runtime.spawn(serve(listener, protection.security.clone(), ahead, service, std::future::pending()));
    let mut client = Client::connect(&protection.endpoint(address)?, values).await?;
    let mut tcp = TcpCopy::start(bytes).map_err(Failure::internal)?;

    let (mut down, mut up, mut copy) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up both sides.
    for round in 0..=times {
        let started = Instant::now();
        sets.send(produce(&parameters)).await.map_err(Failure::internal)?;
        let downloaded = client.download(started).await?;
        let uploaded = client.upload(&sums).await?;
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
        let name = format!("{what} of {:.1} MB through {}", bytes as f64 / 1e6, protection.name());
        Figure::new(name, median(times), "TCP copy into a new buffer", copy)
    };
    Ok([figure("parameters", down), figure("sum of gradients", up)])
}

/// Returns a set of parameters that a thread starts to write.
fn produce(parameters: &Arc<Vec<f32>>) -> FramedSet {
    let chunks = parameters.len().div_ceil(CHUNK_VALUES) as u64;
    let mut producer = SetProducer::new(SetHeader { iteration: Iteration(1), chunks, ..SetHeader::default() });
    let (set, parameters) = (producer.set(), parameters.clone());
    std::thread::spawn(move || {
        parameters.chunks(CHUNK_VALUES).for_each(|chunk| producer.push(encode_parameters(chunk).into()));
    });
    set
}

struct Client {
    connection: Connection,
    sets: ParameterStream,
    values: usize,
    /// The most recently received parameters.
    held: Vec<f32>,
}

impl Client {
    async fn connect(endpoint: &Endpoint, values: usize) -> Result<Self, Failure> {
        let connection = connect(endpoint).await?;
        let sets = connection.parameters(SESSION, None).await.map_err(Failure::internal)?;
        Ok(Self { connection, sets, values, held: vec![0.0; values] })
    }

    async fn download(&mut self, started: Instant) -> Result<Duration, Failure> {
        let mut received = 0;
        while received < self.values {
            let part = self.sets.next().await.map_err(Failure::internal)?;
            let ParameterPart::Chunk { data, .. } = part else { continue };
            let end = self.values.min(received + CHUNK_VALUES);
            decode_parameters(&data, &mut self.held[received..end]).map_err(Failure::internal)?;
            received = end;
        }
        Ok(started.elapsed())
    }

    async fn upload(&mut self, sums: &Arc<Vec<i32>>) -> Result<Duration, Failure> {
        let header = GradientHeader {
            session: SESSION,
            vector: VectorId(1),
            maxima: vec![1.0],
            units: vec![0],
            units_crc32c: 0,
            saturated: 0,
            vanished: 0,
        };
        let (sums, length) = (sums.clone(), sums.len());
        let started = Instant::now();
        let chunks = (0..length)
            .step_by(CHUNK_VALUES)
            .map(move |from| encode_sums(WireFormat::F32Exact, &sums[from..length.min(from + CHUNK_VALUES)]).into());
        self.connection.submit_gradient(header, tokio_stream::iter(chunks)).await.map_err(Failure::internal)?;
        Ok(started.elapsed())
    }
}

/// A coordinator that only transfers vectors.
#[derive(Clone)]
struct Endless {
    values: usize,
    /// The set of parameters that is sent on the next request.
    sets: Arc<Mutex<Option<mpsc::Receiver<FramedSet>>>>,
}

impl Transfers for Endless {
    async fn parameters(
        &self,
        _session: SessionToken,
        _reader: Reader,
    ) -> Result<impl Stream<Item = FramedSet> + Send + 'static, Status> {
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner).take();
        sets.map(ReceiverStream::new).ok_or_else(|| Status::unavailable("they are being sent already"))
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        upload.header().await?;
        let mut left = self.values;
        while let Some(chunk) = upload.chunk(|_| ()).await? {
            let (count, mut sums) = (CHUNK_VALUES.min(left), Vec::with_capacity(CHUNK_VALUES));
            let decoded = decode_sums(WireFormat::F32Exact, &chunk, count, &mut sums);
            decoded.map_err(|error| Status::invalid_argument(error.to_string()))?;
            black_box(sums);
            left -= count;
        }
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
            // The loop ends when the other side is dropped.
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

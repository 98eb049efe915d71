//! A TCP proxy on loopback that simulates network faults. Its condition can change while it is in use.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The condition of a proxy's connections, in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Condition {
    /// The delay of every byte.
    pub latency: Duration,
    /// The bandwidth of each connection and direction, in bytes per second; `None` for no limit.
    pub bytes_per_s: Option<u32>,
    /// Whether no data passes. Neither end notices, as with a pulled cable.
    pub stalled: bool,
    /// The number of bytes from which data sent at once is lost, and with it all that follows on its connection, as on a way whose MTU is
    /// smaller than both ends believe; `None` if everything passes.
    pub lost_from: Option<usize>,
}

/// A proxy in front of an address. Severing it closes the open connections, while new ones are accepted.
#[derive(Debug)]
pub struct FaultProxy {
    /// The address of the proxy.
    pub address: SocketAddr,
    state: watch::Sender<State>,
    hindered: Arc<AtomicU64>,
    made: Arc<AtomicU64>,
    /// The task that accepts connections, which ends when the proxy is dropped.
    _accepting: JoinSet<()>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    target: Option<SocketAddr>,
    condition: Condition,
    severings: u64,
}

/// The maximum number of bytes read at a time.
const READ_BYTES: usize = 16 << 10;

/// The maximum number of pieces in transit in one direction. Beyond this, senders wait as with a full socket buffer.
const PIECES: usize = 64;

impl FaultProxy {
    /// Starts a proxy in front of `target`, in good condition.
    /// Panics if no port is free.
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (state, updates) =
            watch::channel(State { target: Some(target), condition: Condition::default(), severings: 0 });
        let (hindered, made) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counter, count) = (hindered.clone(), made.clone());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                // Without a target, the connection is closed at once.
                let Some(target) = updates.borrow().target else { continue };
                if let Ok(far) = TcpStream::connect(target).await {
                    near.set_nodelay(true).expect("it is open");
                    far.set_nodelay(true).expect("it is open");
                    tokio::spawn(connection(near, far, updates.clone(), counter.clone()));
                }
            }
        });
        Self { address, state, hindered, made, _accepting: accepting }
    }

    /// Sets the target of new connections, or removes it.
    pub fn lead_to(&self, target: Option<SocketAddr>) {
        self.state.send_modify(|state| state.target = target);
    }

    /// The number of pieces of data that the proxy has delayed or held back so far.
    pub fn hindered(&self) -> u64 {
        self.hindered.load(Ordering::Relaxed)
    }

    /// The number of connections that were made to the proxy so far.
    pub fn connections(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Changes the condition.
    pub fn set(&self, condition: Condition) {
        self.state.send_modify(|state| state.condition = condition);
    }

    /// Closes all connections. Returns whether there were any.
    pub fn sever(&self) -> bool {
        // The task that accepts connections holds one receiver, and each connection some.
        let any = self.state.receiver_count() > 1;
        self.state.send_modify(|state| state.severings += 1);
        any
    }
}

async fn connection(near: TcpStream, far: TcpStream, state: watch::Receiver<State>, hindered: Arc<AtomicU64>) {
    let severings = state.borrow().severings;
    let mut severed = state.clone();
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let both = async {
        tokio::join!(
            direction(near_in, far_out, state.clone(), &hindered),
            direction(far_in, near_out, state.clone(), &hindered)
        )
    };
    tokio::select! {
        _ = both => {}
        // This also resolves when the proxy is dropped.
        _ = severed.wait_for(|state| state.severings > severings) => {}
    }
}

/// Copies one direction until the end of the stream, with the latency and the bandwidth of the condition.
async fn direction(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    hindered: &AtomicU64,
) {
    let (pieces, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let read = async move {
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if pieces.send((Instant::now(), buffer[..length].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((read_at, piece)) = arriving.recv().await {
            if state.borrow().condition != Condition::default() {
                hindered.fetch_add(1, Ordering::Relaxed);
            }
            let condition = match state.wait_for(|state| !state.condition.stalled).await {
                Ok(state) => state.condition,
                Err(_) => return,
            };
            if condition.lost_from.is_some_and(|lost_from| piece.len() >= lost_from) {
                // The sender repeats it for ever.
                return std::future::pending().await;
            }
            tokio::time::sleep_until(read_at + condition.latency).await;
            if let Some(bytes_per_s) = condition.bytes_per_s {
                tokio::time::sleep(Duration::from_micros(
                    1_000_000 * piece.len() as u64 / u64::from(bytes_per_s.max(1)),
                ))
                .await;
            }
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        // Passes on the end of the stream.
        drop(to.shutdown().await);
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that echoes its input.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mut from, mut to) = stream.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
            }
        });
        address
    }

    /// Returns whether a byte comes back.
    async fn answers(stream: &mut TcpStream) -> bool {
        let mut byte = [0];
        stream.write_all(b"x").await.is_ok() && stream.read_exact(&mut byte).await.is_ok()
    }

    #[tokio::test]
    async fn a_proxy_leads_to_its_target_and_counts_what_it_hinders() {
        let link = FaultProxy::to(echo().await).await;
        link.lead_to(None);
        assert!(!answers(&mut TcpStream::connect(link.address).await.unwrap()).await);
        link.lead_to(Some(echo().await));
        let mut stream = TcpStream::connect(link.address).await.unwrap();
        assert!(answers(&mut stream).await);
        assert_eq!(link.hindered(), 0);
        link.set(Condition { latency: Duration::from_millis(1), ..Condition::default() });
        assert!(answers(&mut stream).await);
        assert_eq!(link.hindered(), 2, "there and back");
        link.sever();
        assert!(!answers(&mut stream).await);
        assert!(answers(&mut TcpStream::connect(link.address).await.unwrap()).await, "new connections are accepted");
        assert_eq!(link.connections(), 3);
    }
}

//! Measures latency and bandwidth between this machine and a coordinator, and their effect on an assignment.

use std::fmt;
use std::time::{Duration, Instant};

use ata_net::Endpoint;
use ata_net::limits::{MAX_UPLOADS, STRANGER_TIMEOUT};
use ata_types::seconds;
use ata_wire::limits::{CHUNK_TIMEOUT, MAX_CHUNK_BYTES, MAX_PROBE_BYTES};
use ata_wire::{Connection, ProbeResult, connect};
use tonic::{Code, Status as CallStatus};

use crate::finding::{Finding, Status, bytes};

const LATENCY: &str = "latency";
const BANDWIDTH: &str = "bandwidth";

/// The number of round trips whose median is taken, unless they take longer than [`TRIPS_WITHIN`] in all.
const TRIPS: usize = 11;
const TRIPS_WITHIN: Duration = Duration::from_secs(3);

/// The round-trip time above which there is a warning: each assignment waits for a round trip.
const LONG_TRIP: Duration = Duration::from_secs(1);

/// The minimum time of a transfer that measures the speed of the link; a shorter one mostly measures its start.
const LONG_ENOUGH: Duration = Duration::from_millis(300);

/// The size of the first transfer, in bytes; each further one is `GROWTH` times larger. If a link takes less than
/// [`LONG_ENOUGH`] for one transfer, the next one is done before the coordinator's timeout.
const FIRST_BYTES: u64 = 64 << 10;
const GROWTH: u64 = 8;

/// The maximum number of tries, since the coordinator measures only a few machines at a time.
const TRIES: u32 = 15;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which a new connection is opened, since one without a session is closed soon.
const CONNECTION_LIFE: Duration = STRANGER_TIMEOUT.checked_div(4).expect("not by zero");

pub(crate) struct Link<'a> {
    endpoint: &'a Endpoint,
    connection: Connection,
    opened: Instant,
}

/// The speed of a link.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    trip_s: f64,
    down: Rate,
    up: Rate,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    bytes_per_s: f64,
    /// Whether the link may be faster, as the transfer was too short to tell.
    is_bound: bool,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_least = if self.is_bound { "at least " } else { "" };
        write!(f, "{at_least}{}/s", bytes(self.bytes_per_s as u64))
    }
}

impl<'a> Link<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, connection: Connection) -> Self {
        Self { endpoint, connection, opened: Instant::now() }
    }

    /// Makes one probe, once it is this machine's turn.
    pub(crate) async fn probe(&mut self, up_bytes: u64, down_bytes: u64) -> Result<ProbeResult, CallStatus> {
        let mut tries = 1;
        loop {
            if self.opened.elapsed() > CONNECTION_LIFE {
                self.open().await?;
            }
            match self.connection.probe(up_bytes, down_bytes).await {
                Err(status) if status.code() == Code::ResourceExhausted && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                answer => return answer,
            }
        }
    }

    async fn open(&mut self) -> Result<(), CallStatus> {
        let opened = connect(self.endpoint).await;
        self.connection = opened.map_err(|error| CallStatus::unavailable(error.to_string()))?;
        self.opened = Instant::now();
        Ok(())
    }

    /// Measures latency and bandwidth. Returns findings for what could not be measured.
    pub(crate) async fn measure(mut self) -> (Option<Speed>, Vec<Finding>) {
        let trip_s = match self.trip_s().await {
            Ok(trip_s) => trip_s,
            Err(status) => return (None, vec![failed(LATENCY, &status)]),
        };
        let latency = latency(trip_s);
        match (self.rate(false, trip_s).await, self.rate(true, trip_s).await) {
            (Ok(down), Ok(up)) => (Some(Speed { trip_s, down, up }), vec![latency]),
            (Err(status), _) | (_, Err(status)) => (None, vec![latency, failed(BANDWIDTH, &status)]),
        }
    }

    /// Returns the median of some round trips.
    async fn trip_s(&mut self) -> Result<f64, CallStatus> {
        let (began, mut times) = (Instant::now(), Vec::new());
        while times.is_empty() || times.len() < TRIPS && began.elapsed() < TRIPS_WITHIN {
            times.push(self.probe(0, 0).await?.until_answer.as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// Sends or fetches increasing amounts of data, until a transfer takes long enough.
    async fn rate(&mut self, is_up: bool, trip_s: f64) -> Result<Rate, CallStatus> {
        self.open().await?;
        let mut count = FIRST_BYTES;
        loop {
            let took_s = if is_up {
                self.probe(count, 0).await?.until_answer.as_secs_f64() - trip_s
            } else {
                self.probe(0, count).await?.until_end.as_secs_f64()
            };
            let is_bound = took_s < LONG_ENOUGH.as_secs_f64();
            if !is_bound || count == MAX_PROBE_BYTES {
                // A transfer takes some time, even if the clock shows none.
                return Ok(Rate { bytes_per_s: count as f64 / took_s.max(1e-6), is_bound });
            }
            count = (GROWTH * count).min(MAX_PROBE_BYTES);
        }
    }
}

/// Returns the finding for a measurement that failed after the coordinator had answered.
fn failed(check: &'static str, status: &CallStatus) -> Finding {
    let found = format!("not measured: {:?}: {}", status.code(), status.message());
    if status.code() == Code::ResourceExhausted {
        return Finding::warning(check, found, "other machines are measuring: run ata doctor again");
    }
    let fix = "the link loses packets, or is too slow. If small messages pass and large ones do not (VPN, tunnel), lower the MTU at both \
               ends: ip link set dev DEVICE mtu 1280; `ping -M do -s 1472 HOST` finds what passes";
    Finding::problem(check, found, fix)
}

fn latency(trip_s: f64) -> Finding {
    let found = format!("a round trip takes {} (median)", seconds(trip_s));
    if trip_s <= LONG_TRIP.as_secs_f64() {
        return Finding::ok(LATENCY, found);
    }
    let fix = "larger tasks (--task-batch at the coordinator) make up for it; over such a link, so does a worker that is nearer";
    Finding::warning(LATENCY, format!("{found}: expected {} at most", seconds(LONG_TRIP.as_secs_f64())), fix)
}

impl Speed {
    /// Returns the seconds that an assignment takes in addition to computation: receiving the parameters of the model,
    /// and sending a gradient of the same size.
    fn assignment_s(&self, parameters: u64) -> f64 {
        let bytes = 4.0 * parameters as f64;
        self.trip_s + bytes / self.down.bytes_per_s + bytes / self.up.bytes_per_s
    }

    /// Returns a finding about the bandwidth for the model, whose tasks take `task_s` on this machine.
    pub fn finding(&self, parameters: u64, task_s: Option<f64>) -> Finding {
        let Self { down, up, .. } = self;
        let task = task_s.map_or(String::new(), |task_s| format!(", and each task {} here", seconds(task_s)));
        let found = format!(
            "{down} down, {up} up; an assignment moves {} each way, which takes about {}{task}",
            bytes(4 * parameters),
            seconds(self.assignment_s(parameters))
        );
        let slowest = down.bytes_per_s.min(up.bytes_per_s);
        // A chunk must arrive in time, even if it shares the link with those of other gradients.
        let least = MAX_CHUNK_BYTES.min(4 * parameters as usize) as f64 / CHUNK_TIMEOUT.as_secs_f64();
        let status = match slowest {
            slowest if slowest < least => Status::Problem,
            slowest if slowest < least * MAX_UPLOADS as f64 => Status::Warning,
            _ => return Finding::ok(BANDWIDTH, found),
        };
        let expected = format!("{found}: expected {}/s at least", bytes((least * MAX_UPLOADS as f64) as u64));
        let fix = "transfers are abandoned on such a link: use a faster one, or a smaller --model";
        Finding::bad(BANDWIDTH, status, expected, fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_takes_a_trip_and_both_transfers() {
        let rate = |bytes_per_s, is_bound| Rate { bytes_per_s, is_bound };
        let speed = Speed { trip_s: 0.01, down: rate(100e6, true), up: rate(10e6, false) };
        assert!((speed.assignment_s(2_500_000) - 1.11).abs() < 1e-9);
        let finding = speed.finding(2_500_000, Some(0.25));
        assert_eq!(finding.status, Status::Ok);
        for part in ["at least 100 MB/s down, 10.0 MB/s up", "10.0 MB each way", "about 1.11 s", "each task 250 ms"] {
            assert!(finding.found.contains(part), "{}", finding.found);
        }
    }

    #[test]
    fn slow_links_are_told() {
        let status = |bytes_per_s| {
            let rate = |bytes_per_s| Rate { bytes_per_s, is_bound: false };
            Speed { trip_s: 0.1, down: rate(1e9), up: rate(bytes_per_s) }.finding(1_000_000, None).status
        };
        assert_eq!([1e3, 5e3, 1e4].map(status), [Status::Problem, Status::Warning, Status::Ok]);
        assert_eq!([0.2, 1.5].map(|trip_s| latency(trip_s).status), [Status::Ok, Status::Warning]);
    }
}

//! A download that survives broken connections.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use indicatif::DecimalBytes;
use ureq::http::{HeaderValue, header};
use ureq::{Agent, Timeout};

use super::answer::{Answer, version};
use super::partial::Partial;
use crate::failure::Failure;
use crate::output::{Counter, escaped};

/// No server takes longer to be found and to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection on which nothing moves for this long is broken.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The first wait before another connection, and the longest one.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// The official archive has 169 MB; whatever is much longer is something else.
const MAX_BYTES: u64 = 1 << 30;

const ENDED_EARLY: &str = "the connection ended early";

/// Fills the partial file, with up to `retries` connections in a row that bring nothing new.
pub(super) fn download(url: &str, partial: &mut Partial, retries: u32) -> Result<(), Failure> {
    let mut source = Source { url, agent: agent(), version: None, answered: false };
    let (mut farthest, mut tried) = (partial.len(), 0);
    loop {
        let cause = match source.request(partial)? {
            Outcome::Whole => return Ok(()),
            // It is empty now, and an empty file fits any archive.
            Outcome::Cleared => continue,
            Outcome::Broken(cause) => cause,
        };
        if partial.len() > farthest {
            (farthest, tried) = (partial.len(), 0);
        }
        if !source.answered || tried == retries {
            return Err(source.give_up(&cause, partial));
        }
        let wait = wait(tried);
        tried += 1;
        eprintln!("{}; trying again in {} s", escaped(&cause), wait.as_secs());
        std::thread::sleep(wait);
    }
}

fn wait(tried: u32) -> Duration {
    let (first, longest) = WAITS;
    first.saturating_mul(2_u32.saturating_pow(tried)).min(longest)
}

fn agent() -> Agent {
    Agent::config_builder()
        .user_agent(concat!("ata/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .timeout_resolve(Some(CONNECT_TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(STALL_TIMEOUT))
        .timeout_per_read(Some(STALL_TIMEOUT))
        .timeout_per_write(Some(STALL_TIMEOUT))
        .build()
        .into()
}

/// Where the archive comes from.
struct Source<'a> {
    url: &'a str,
    agent: Agent,
    /// Which version the server began to send. What an earlier command left is of an unknown version: the SHA-256 of
    /// the whole tells whether the parts fit.
    version: Option<HeaderValue>,
    /// Whether there was any answer yet. If not, a wrong address is likelier than a passing fault.
    answered: bool,
}

/// How a request ended.
enum Outcome {
    Whole,
    /// The partial file was of no use.
    Cleared,
    /// The connection broke, for this reason.
    Broken(String),
}

impl Source<'_> {
    /// Asks for what the partial file lacks, and appends it.
    fn request(&mut self, partial: &mut Partial) -> Result<Outcome, Failure> {
        let mut request = self.agent.get(self.url);
        if partial.len() > 0 {
            request = request.header(header::RANGE, format!("bytes={}-", partial.len()));
            if let Some(version) = &self.version {
                request = request.header(header::IF_RANGE, version);
            }
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(error) => return Ok(Outcome::Broken(describe(&error))),
        };
        self.answered = true;
        let status = response.status();
        let answer = Answer::new(status, response.headers(), partial.len());
        if let Answer::Whole { total: Some(bytes) } | Answer::Rest { total: Some(bytes) } = answer
            && bytes > MAX_BYTES
        {
            return Err(self.too_large(bytes));
        }
        let total = match answer {
            Answer::Whole { total } => {
                partial.clear()?;
                total
            }
            Answer::Rest { total } => total,
            Answer::Complete => return Ok(Outcome::Whole),
            Answer::Misfit => return partial.clear().map(|()| Outcome::Cleared),
            Answer::Busy => return Ok(Outcome::Broken(format!("the server answers {status}"))),
            Answer::Refused => {
                let url = self.url;
                return Err(Failure::unreachable(format!(
                    "{url}: the server answers {status}. Give a mirror with --url"
                )));
            }
        };
        self.version = version(response.headers());
        self.announce(partial, total);
        let progress = Counter::of_bytes("downloaded", partial.len(), total);
        let outcome = self.receive(response.into_body().into_reader(), partial, total, &progress);
        progress.finish();
        outcome
    }

    fn announce(&self, partial: &Partial, total: Option<u64>) {
        let size = total.map_or(String::new(), |total| format!(" ({})", DecimalBytes(total)));
        match partial.len() {
            0 => eprintln!("downloading {}{size}", self.url),
            held => eprintln!("continuing {}{size} after {}", self.url, DecimalBytes(held)),
        }
    }

    fn receive(
        &self,
        mut body: impl Read,
        partial: &mut Partial,
        total: Option<u64>,
        progress: &Counter,
    ) -> Result<Outcome, Failure> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
                Err(cause) => return Ok(Outcome::Broken(describe(&ureq::Error::from(cause)))),
            };
            partial.append(&buffer[..read])?;
            progress.add(read as u64);
            if partial.len() > MAX_BYTES {
                let bytes = partial.len();
                partial.clear()?;
                return Err(self.too_large(bytes));
            }
        }
        // A server may send less than what was asked for.
        Ok(match total {
            Some(total) if partial.len() < total => Outcome::Broken(ENDED_EARLY.into()),
            _ => Outcome::Whole,
        })
    }

    fn too_large(&self, bytes: u64) -> Failure {
        let url = self.url;
        Failure::data(format!(
            "{url}: the server sends {bytes} bytes, expected {MAX_BYTES} at most. Is the --url right?"
        ))
    }

    fn give_up(&self, cause: &str, partial: &Partial) -> Failure {
        let url = self.url;
        let problem = if self.answered { "the download broke off" } else { "unreachable" };
        let remedy = if self.answered { "Try again later" } else { "Check the network" };
        let kept = match partial.len() {
            0 => String::new(),
            held => format!(
                ". {} is kept: the same command continues after {}",
                partial.path().display(),
                DecimalBytes(held)
            ),
        };
        Failure::unreachable(format!("{url}: {problem}: {cause}. {remedy}, or give a mirror with --url{kept}"))
    }
}

fn describe(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(cause) if cause.kind() == ErrorKind::UnexpectedEof => ENDED_EARLY.into(),
        ureq::Error::Io(cause) => cause.to_string(),
        ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
            format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())
        }
        ureq::Error::Timeout(_) => format!("nothing was received for {} s", STALL_TIMEOUT.as_secs()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_minute() {
        assert_eq!([0, 1, 2, 5, 6, 100].map(|tried| wait(tried).as_secs()), [1, 2, 4, 32, 60, 60]);
    }
}

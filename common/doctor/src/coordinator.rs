//! Checks the connection to a coordinator: whether it is reachable, can be trusted, admits this machine, and speaks the same protocol.

use std::time::{Duration, Instant};

use ata_net::limits::{ANSWER_TIMEOUT, CONNECT_TIMEOUT};
use ata_net::{ConnectError, Endpoint, Obstacle, Trust, why_refused};
use ata_types::seconds;
use ata_wire::{PROTOCOL, ProbeResult, ProbeSummary, RunSpec, connect};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::{Code, Status as CallStatus};

use crate::finding::Finding;
use crate::link::{Link, Speed};

const REACHABILITY: &str = "reachability";
const TRUST: &str = "trust";
const VERSION: &str = "version";

/// The maximum number of broken connections before one gives a reason: on a busy machine many are closed before the reason is read.
const TRIES: u32 = 50;

const PAUSE: Duration = Duration::from_millis(20);

/// The advice if something else may be listening.
const ANOTHER: &str = "check that it is an ata coordinator that listens there, and see its log";

/// The advice for a worker that is refused.
const TOKEN: &str =
    "join with the line that the coordinator prints: `ata token show` on its machine prints the token again";

/// The advice for a worker that is refused and uses certificates.
const CERTIFICATES: &str = "--tls-cert and --tls-key name this machine's certificate and key, --tls-ca the authority of the \
                            coordinator's; its --tls-client-ca is the authority of this machine's (all in PEM)";

/// A coordinator's description of itself, and the speed of the link to it.
pub struct Reached {
    /// The specification of the coordinator's run.
    pub run: RunSpec,
    /// The speed of the link, if it could be measured.
    pub speed: Option<Speed>,
}

/// Checks the connection to a coordinator, step by step until one fails.
pub async fn check(endpoint: &Endpoint) -> (Option<Reached>, Vec<Finding>) {
    let mut findings = Vec::new();
    match steps(endpoint, &mut findings).await {
        Ok(reached) => (Some(reached), findings),
        Err(finding) => {
            findings.push(finding);
            (None, findings)
        }
    }
}

async fn steps(endpoint: &Endpoint, findings: &mut Vec<Finding>) -> Result<Reached, Finding> {
    findings.push(reach(endpoint).await?);
    let (link, summary) = enter(endpoint).await?;
    let ProbeSummary { version: theirs, run_id, run, .. } = summary;
    findings.extend([Finding::ok(TRUST, trusted(endpoint)), version(&theirs, &run_id)]);
    let (speed, measured) = link.measure().await;
    findings.extend(measured);
    Ok(Reached { run, speed })
}

/// Asks the coordinator for its description.
async fn enter(endpoint: &Endpoint) -> Result<(Link<'_>, ProbeSummary), Finding> {
    let mut tries = 1;
    loop {
        let connected = timeout(ANSWER_TIMEOUT, connect(endpoint)).await.map_err(|_| {
            let found = format!("the server there does not finish a TLS handshake within {ANSWER_TIMEOUT:?}");
            Finding::problem(TRUST, found, ANOTHER)
        })?;
        let mut link = Link::new(endpoint, connected.map_err(|error| distrust(&error))?);
        match link.probe(0, 0).await {
            Ok(ProbeResult { summary, .. }) => return Ok((link, summary)),
            // The connection was closed, and the reason may have come too late to be read.
            Err(status) if why_refused(&status).is_none() && broke(&status) => {
                if tries == TRIES {
                    return Err(in_the_way(endpoint).await.unwrap_or_else(|| refusal(&status, endpoint.trust())));
                }
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(status) => return Err(refusal(&status, endpoint.trust())),
        }
    }
}

/// Returns `true` if the connection failed, and `false` if the coordinator answered with an error.
fn broke(status: &CallStatus) -> bool {
    matches!(status.code(), Code::Unknown | Code::Internal | Code::Cancelled | Code::Unavailable)
}

/// Checks that a TCP connection can be made.
async fn reach(endpoint: &Endpoint) -> Result<Finding, Finding> {
    let began = Instant::now();
    let (host, port) = endpoint.host_and_port();
    match timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => {
            let time = seconds(began.elapsed().as_secs_f64());
            Ok(Finding::ok(REACHABILITY, format!("{host}:{port} accepts a connection after {time}")))
        }
        _ => Err(in_the_way(endpoint).await.unwrap_or_else(|| {
            Finding::problem(REACHABILITY, format!("{host}:{port} did not accept a connection at first"), "try again")
        })),
    }
}

/// Returns a finding for what keeps this machine from the coordinator, if anything does.
async fn in_the_way(endpoint: &Endpoint) -> Option<Finding> {
    let Obstacle { found, fix } = endpoint.obstacle().await?;
    Some(Finding::problem(REACHABILITY, found, fix))
}

/// Returns the finding for a peer that listens, but with which no connection could be made.
fn distrust(error: &ConnectError) -> Finding {
    let fix = match error {
        ConnectError::Unreachable(_, Obstacle { found, fix }) => return Finding::problem(REACHABILITY, found, fix),
        ConnectError::Distrusted { .. } => TOKEN,
        ConnectError::Certificates { .. } => CERTIFICATES,
        ConnectError::Address(_) => ANOTHER,
    };
    Finding::problem(TRUST, error.to_string(), fix)
}

/// Returns the finding for a first call that was refused.
fn refusal(status: &CallStatus, trust: &Trust) -> Finding {
    let way_in = if matches!(trust, Trust::Certificates { .. }) { CERTIFICATES } else { TOKEN };
    let same = "use the same release of ata on all machines";
    if let Some(reason) = why_refused(status) {
        return Finding::problem(TRUST, format!("the coordinator is not trusted: {reason}"), way_in);
    }
    let message = status.message();
    match status.code() {
        Code::PermissionDenied => Finding::problem(TRUST, format!("this machine is not let in: {message}"), way_in),
        Code::Unimplemented => {
            let found = "the coordinator's release cannot be asked for more: expected one with the call Probe";
            Finding::warning(VERSION, found, same)
        }
        Code::FailedPrecondition => Finding::problem(VERSION, message, same),
        Code::ResourceExhausted => Finding::warning(REACHABILITY, message, "run ata doctor again in a minute"),
        Code::DeadlineExceeded => Finding::problem(REACHABILITY, message, ANOTHER),
        code => {
            let fix = "see the coordinator's log: its run may be over, or it may be stopping";
            Finding::problem(REACHABILITY, format!("the coordinator's answer is {code:?}: {message}"), fix)
        }
    }
}

fn trusted(endpoint: &Endpoint) -> &'static str {
    match endpoint.trust() {
        Trust::Open => "let in; the connection is neither encrypted nor authenticated",
        Trust::Pinned { .. } => "its key is that of the join token, and the secret lets this machine in",
        Trust::Certificates { identity: None, .. } => "its certificate is of the authority, and it asks for none",
        Trust::Certificates { .. } => "both certificates are of the authority",
    }
}

fn version(theirs: &str, run_id: &str) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    if theirs == ours {
        return Finding::ok(VERSION, format!("run {run_id}, protocol {PROTOCOL}, ata {ours} at both ends"));
    }
    let found =
        format!("the coordinator of run {run_id} is ata {theirs}, and this is {ours}; both speak protocol {PROTOCOL}");
    Finding::warning(VERSION, found, "use the same release of ata on all machines: models may differ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;

    #[tokio::test]
    async fn an_address_where_nobody_listens_is_a_problem() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        for (address, fix) in [(address.to_string(), "--listen 0.0.0.0"), ("no-such-host.invalid:1".into(), "spelling")]
        {
            let (reached, findings) = check(&address.parse().unwrap()).await;
            let [Finding { check: REACHABILITY, status: Status::Problem, fix: Some(found), .. }] = &findings[..] else {
                panic!("{findings:?}")
            };
            assert!(reached.is_none() && found.contains(fix), "{found}");
        }
    }

    #[test]
    fn refusals_name_what_to_do() {
        for (status, check, fix) in [
            (CallStatus::permission_denied("not valid (any more)"), TRUST, "ata token show"),
            (CallStatus::unimplemented(""), VERSION, "same release"),
            (CallStatus::failed_precondition("protocol version 3"), VERSION, "same release"),
            (CallStatus::unavailable("the run is over"), REACHABILITY, "log"),
            (CallStatus::deadline_exceeded("no answer"), REACHABILITY, "is an ata coordinator"),
        ] {
            let finding = refusal(&status, &Trust::Open);
            assert_eq!((finding.check, finding.fix.unwrap().contains(fix)), (check, true), "{status:?}");
        }
        assert_eq!(version(env!("CARGO_PKG_VERSION"), "x").status, Status::Ok);
        assert_eq!(version("0.0.1", "x").status, Status::Warning);
    }
}

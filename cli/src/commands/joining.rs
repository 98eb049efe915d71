//! Finding and authenticating the coordinator of a worker.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ata_net::{Endpoint, JoinToken, Trust};
use ata_worker::Relocate;
use tonic::transport::{Certificate, Identity};

use crate::args::JoinArgs;
use crate::failure::{Failure, require};

const DEFAULT_COORDINATOR: &str = "http://127.0.0.1:7070";
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Returns the coordinator that the flags name. Waits up to `timeout` for the file with the join token.
pub(super) async fn endpoint(args: &JoinArgs, timeout: Duration) -> Result<Endpoint, Failure> {
    let JoinArgs { coordinator, join, join_file, tls_ca, tls_cert, tls_key } = args;
    let goes_together = tls_cert.is_some() == tls_key.is_some() && (tls_cert.is_none() || tls_ca.is_some());
    require(goes_together, || "--tls-cert and --tls-key go together, and with --tls-ca")?;
    let ways = [coordinator.is_some(), join.is_some(), join_file.is_some()];
    require(
        ways.iter().filter(|given| **given).count() <= 1,
        || "--coordinator, --join and --join-file (or ATA_COORDINATOR, ATA_JOIN, ATA_JOIN_FILE) exclude each other",
    )?;
    match (join, join_file, tls_ca) {
        (None, None, None) => Ok(coordinator.as_deref().unwrap_or(DEFAULT_COORDINATOR).parse()?),
        (None, None, Some(ca)) => {
            let address =
                coordinator.as_deref().ok_or_else(|| Failure::usage("--tls-ca: expected --coordinator, too"))?;
            let identity = match (tls_cert, tls_key) {
                (Some(certificate), Some(key)) => Some(Identity::from_pem(read(certificate)?, read(key)?)),
                _ => None,
            };
            let trust = Trust::Certificates { ca: Certificate::from_pem(read(ca)?), identity };
            Ok(Endpoint::trusting(address, trust)?)
        }
        (_, _, Some(_)) => Err(Failure::usage("--tls-ca: a join token names the coordinator's key already")),
        (Some(token), ..) => Ok(token.parse::<JoinToken>()?.into()),
        (None, Some(file), None) => Ok(from_file(file, timeout).await?.into()),
    }
}

async fn from_file(file: &Path, timeout: Duration) -> Result<JoinToken, Failure> {
    let began = Instant::now();
    while !file.exists() && began.elapsed() < timeout {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let text = String::from_utf8_lossy(&read(file)?).into_owned();
    text.parse().map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

/// Returns a function that rereads the join token's file, if there is one: with a new address or secret, there is a new token.
pub(super) fn relocate(args: &JoinArgs) -> Option<Relocate> {
    let file = args.join_file.clone()?;
    Some(Arc::new(move || Some(std::fs::read_to_string(&file).ok()?.parse::<JoinToken>().ok()?.into())))
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|cause| Failure::usage(format!("{}: {cause}", file.display())))
}

//! `ata health`: whether a coordinator is alive, for health checks.

use ata_observe::Client;

use crate::args::HealthArgs;
use crate::failure::{Exit, Failure};
use crate::output::escaped;

pub(crate) async fn run(args: HealthArgs) -> Result<Exit, Failure> {
    let client: Client = args.url.parse()?;
    let answer = client.get(if args.ready { "/readyz" } else { "/healthz" }).await?;
    println!("{}", escaped(String::from_utf8_lossy(&answer).trim_end()));
    Ok(Exit::DONE)
}

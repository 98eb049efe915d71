//! The command `ata health`: a health check of a coordinator.

use ata_observe::Client;

use crate::args::HealthArgs;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::print_message;

pub(crate) async fn run(args: HealthArgs) -> Result<(), Failure> {
    let client: Client = args.url.parse()?;
    let answer = client.get(if args.ready { "/readyz" } else { "/healthz" }).await?;
    print_message(&escaped(String::from_utf8_lossy(&answer).trim_end()))
}

//! Checks whether the coordinator's addresses are free.

use std::net::{SocketAddr, TcpListener};

use ata_net::{Obstacle, cannot_listen};

use crate::finding::{Finding, Status};

const CHECK: &str = "ports";

/// Checks the address at which a coordinator would listen for workers.
pub fn workers(listen: SocketAddr) -> Finding {
    of("the coordinator", "--listen", listen, Status::Problem)
}

/// Checks the address of the dashboard, unless it is off. If the default address is taken, a coordinator uses a free port.
pub fn dashboard(address: Option<SocketAddr>, is_default: bool) -> Finding {
    let status = if is_default { Status::Warning } else { Status::Problem };
    let off = || Finding::ok(CHECK, "--dashboard off");
    address.map_or_else(off, |address| of("the dashboard", "--dashboard", address, status))
}

fn of(what: &str, flag: &str, address: SocketAddr, status: Status) -> Finding {
    let Err(cause) = TcpListener::bind(address) else {
        return Finding::ok(CHECK, format!("{what} can listen on {address}"));
    };
    let Obstacle { found, fix } = cannot_listen(address, &cause, flag);
    Finding::bad(CHECK, status, format!("{what} {found}"), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_a_problem() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let finding = workers(address);
        assert_eq!(finding.status, Status::Problem);
        assert!(finding.fix.unwrap().contains("choose another --listen"));
        assert_eq!(dashboard(Some(address), false).status, Status::Problem);
        assert_eq!(dashboard(Some(address), true).status, Status::Warning);
        assert_eq!(dashboard(None, false), Finding::ok(CHECK, "--dashboard off"));
        drop(taken);
        assert_eq!(workers(address).status, Status::Ok);
    }

    #[test]
    fn an_address_of_another_machine_is_a_problem() {
        // This address is reserved for documentation (RFC 5737).
        let finding = workers("192.0.2.1:7070".parse().unwrap());
        assert!(finding.status == Status::Problem && finding.fix.unwrap().contains("0.0.0.0"));
    }
}

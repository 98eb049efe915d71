//! What keeps a client from a server, and what to do about it. It is found with a connection of its own after an attempt has failed.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::limits::CONNECT_TIMEOUT;
use crate::warnings::Protocol;

/// The time in which a server must say something: two round trips over a satellite.
const FIRST_WORD_TIMEOUT: Duration = Duration::from_secs(2);

/// The first bytes of an HTTP/2 client (RFC 9113, section 3.4), with empty settings. A server of another protocol answers them with an
/// error of its own.
const HTTP2_CLIENT: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The advice if a process may not open another file.
pub const MORE_FILES: &str = "raise the limit of open files: ulimit -n 65536, LimitNOFILE=65536 in a systemd unit, or docker run --ulimit nofile=65536";

/// What keeps a client from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub fix: String,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.found, self.fix)
    }
}

enum Greeting {
    Http1,
    Http2,
    Tls,
    Other(String),
    Silence,
    Closed,
}

impl Obstacle {
    fn new(found: String, fix: impl Into<String>) -> Self {
        Self { found, fix: fix.into() }
    }

    /// Looks for what keeps a client from a server of this protocol, encrypted or not; `None` if the server speaks it.
    pub async fn find((host, port): (&str, u16), protocol: Protocol, is_encrypted: bool) -> Option<Self> {
        let at = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        match connected(host, port, &at, protocol).await {
            Ok(stream) => Self::of(&greeting(stream).await, &at, protocol, is_encrypted),
            Err(obstacle) => Some(obstacle),
        }
    }

    fn of(greeting: &Greeting, at: &str, protocol: Protocol, is_encrypted: bool) -> Option<Self> {
        let not_ata = match protocol {
            Protocol::Grpc => {
                "give the address of the coordinator's --listen, which it prints at its start and `ata token show` prints again"
            }
            Protocol::Http => {
                "give the address of the dashboard, which the coordinator prints at its start (--dashboard)"
            }
        };
        let is_dashboard = protocol == Protocol::Http;
        let (found, fix) = match greeting {
            Greeting::Tls if is_encrypted => return None,
            Greeting::Http2 if !is_encrypted && !is_dashboard => return None,
            Greeting::Http1 if !is_encrypted && is_dashboard => return None,
            Greeting::Tls if is_dashboard => (
                format!("{at} speaks TLS"),
                format!("use https://{at}, or --token-file with the status token of its credentials folder"),
            ),
            Greeting::Tls => (
                format!("{at} speaks TLS"),
                "use --join with the token that `ata token show` prints there, or https:// with --tls-ca".into(),
            ),
            Greeting::Http2 if is_dashboard => (format!("{at} is where workers connect"), not_ata.into()),
            Greeting::Http2 => (
                format!("{at} does not speak TLS"),
                format!(
                    "use --coordinator http://{at}, and no --join, if that coordinator was started with --insecure"
                ),
            ),
            Greeting::Http1 if is_dashboard => (format!("{at} does not speak TLS"), format!("use http://{at}")),
            Greeting::Http1 => {
                (format!("{at} is a web server, or a dashboard, and not where workers connect"), not_ata.into())
            }
            Greeting::Other(said) => (format!("{at} is another program, which says '{said}'"), not_ata.into()),
            Greeting::Silence => (
                format!("{at} accepts connections, but says nothing"),
                format!("{not_ata}; if it is the right one, that process hangs, or the network between loses packets"),
            ),
            Greeting::Closed => (
                format!("{at} accepts connections and closes them at once"),
                format!(
                    "{not_ata}; if it is the right one, see its log: a proxy has no server, or it has no open files left"
                ),
            ),
        };
        Some(Self::new(found, fix))
    }

    /// Explains why no connection could be made to `at`, one of whose addresses is `address`.
    fn of_connecting(cause: &io::Error, at: &str, address: SocketAddr, protocol: Protocol) -> Self {
        use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
        let (port, is_v6) = (address.port(), address.is_ipv6());
        let family = if is_v6 { "IPv6" } else { "IPv4" };
        match cause.kind() {
            ConnectionRefused => {
                let flag = if protocol == Protocol::Grpc { "--listen" } else { "--dashboard" };
                let any = if is_v6 { "[::]" } else { "0.0.0.0" };
                let found = format!("{at} refuses connections: nothing listens there ({family})");
                let mut fix =
                    format!("start the coordinator there, with {flag} {any}:{port} if other machines shall reach it");
                if is_v6 {
                    fix += " (0.0.0.0 is IPv4 only)";
                }
                Self::new(found, fix)
            }
            HostUnreachable | NetworkUnreachable | AddrNotAvailable => {
                let found = format!("this machine has no way to {at} over {family} ({cause})");
                let fix = "use an address of the coordinator's in a network that both machines have: `ata token show --advertise \
                           ADDRESS` there puts it into the token; `ip addr` and `ip route` list what this machine has";
                Self::new(found, fix)
            }
            _ if is_out_of_files(cause) => {
                Self::new(format!("this process has no files left for a connection to {at} ({cause})"), MORE_FILES)
            }
            _ => Self::new(
                format!("{at} cannot be reached: {cause}"),
                "check the address, and the network between the machines",
            ),
        }
    }
}

async fn connected(host: &str, port: u16, at: &str, protocol: Protocol) -> Result<TcpStream, Obstacle> {
    let addresses: Vec<SocketAddr> = match lookup_host((host, port)).await {
        Ok(addresses) => addresses.collect(),
        Err(cause) if is_out_of_files(&cause) => {
            return Err(Obstacle::of_connecting(&cause, at, ([0; 4], port).into(), protocol));
        }
        Err(_) => Vec::new(),
    };
    let Some(&address) = addresses.first() else {
        let fix =
            "check the spelling, or have the coordinator's token hold its address: ata token show --advertise ADDRESS";
        return Err(Obstacle::new(format!("the host name '{host}' is not known here"), fix));
    };
    if let Ok(connected) = timeout(CONNECT_TIMEOUT, TcpStream::connect(&addresses[..])).await {
        return connected.map_err(|cause| Obstacle::of_connecting(&cause, at, address, protocol));
    }
    let fix = format!(
        "open TCP port {port} in the firewalls between the two machines, and check the address: if it is one of a network that this \
         machine does not reach, `ata token show --advertise ADDRESS` there names another"
    );
    Err(Obstacle::new(format!("{at} does not answer"), fix))
}

async fn greeting(mut stream: TcpStream) -> Greeting {
    let mut said = [0; 256];
    let read = async {
        stream.write_all(HTTP2_CLIENT).await?;
        stream.read(&mut said).await
    };
    let length = match timeout(FIRST_WORD_TIMEOUT, read).await {
        Err(_) => return Greeting::Silence,
        Ok(Err(_) | Ok(0)) => return Greeting::Closed,
        Ok(Ok(length)) => length,
    };
    let said = &said[..length];
    // A coordinator with TLS explains itself to clients without: by GOAWAY with "inadequate security", or on its dashboard in words.
    let refuses_plain = |said: &[u8]| {
        said.ends_with(&crate::handshake::NO_PLAIN_HTTP2_HERE) || said.windows(10).any(|part| part == b"speaks TLS")
    };
    match said {
        [21, 3, ..] => Greeting::Tls,
        said if refuses_plain(said) => Greeting::Tls,
        [_, _, _, 4, ..] => Greeting::Http2,
        said if said.starts_with(b"HTTP/") => Greeting::Http1,
        said => {
            let line = said.split(|byte| b"\r\n".contains(byte)).next().unwrap_or_default();
            Greeting::Other(line[..line.len().min(60)].escape_ascii().to_string())
        }
    }
}

/// Returns whether an error is the limit of open files, of this process or of the system.
pub fn is_out_of_files(cause: &io::Error) -> bool {
    let codes: &[i32] = if cfg!(windows) { &[4, 10_024] } else { &[23, 24] };
    cause.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Explains why this machine cannot listen on an address that a flag names.
pub fn cannot_listen(address: SocketAddr, cause: &io::Error, flag: &str) -> Obstacle {
    let (found, fix) = match cause.kind() {
        io::ErrorKind::AddrInUse => (
            "another program does, maybe an ata coordinator".into(),
            format!("stop it (`ss -ltnp` says which it is), or choose another {flag}; port 0 takes a free one"),
        ),
        io::ErrorKind::AddrNotAvailable => (
            "this machine does not have that address".into(),
            format!(
                "choose one of `ip addr` for {flag}, or {} for all of them",
                if address.is_ipv6() { "[::]" } else { "0.0.0.0" }
            ),
        ),
        io::ErrorKind::PermissionDenied => {
            ("ports below 1024 are not for every user".into(), format!("choose a port above for {flag}"))
        }
        _ if is_out_of_files(cause) => (cause.to_string(), MORE_FILES.to_owned()),
        _ => (cause.to_string(), format!("choose another {flag}")),
    };
    Obstacle::new(format!("cannot listen on {address}: {found}"), fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// What a server says to a client, and whether it then hangs up.
    async fn server(says: &'static [u8], hangs_up: bool) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                // A server that hangs up at once resets the connection, whose client has sent something.
                if !says.is_empty() {
                    drop(stream.read(&mut [0; 256]).await);
                    stream.write_all(says).await.unwrap();
                }
                if !hangs_up {
                    kept.push(stream);
                }
            }
        });
        port
    }

    #[tokio::test]
    async fn each_cause_has_its_name_and_its_fix() {
        use Protocol::{Grpc, Http};
        const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
        const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 70];
        let no_tls_here = &crate::handshake::NO_PLAIN_HTTP2_HERE;
        for (says, hangs_up, protocol, is_encrypted, expected) in [
            (&b"SSH-2.0-OpenSSH_9.6\r\n"[..], false, Grpc, false, Some(["'SSH-2.0-OpenSSH_9.6'", "--listen"])),
            (b"SSH-2.0-OpenSSH_9.6\r\n", true, Grpc, true, Some(["'SSH-2.0-OpenSSH_9.6'", "--listen"])),
            (b"\x1b[2J\xff", true, Http, false, Some([r"'\x1b[2J\xff'", "dashboard"])),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, Grpc, false, Some(["web server", "ata token show"])),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, Grpc, true, Some(["web server", "ata token show"])),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, Http, true, Some(["does not speak TLS", "use http://"])),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, Http, false, None),
            (crate::handshake::NO_PLAIN_HTTP_HERE, true, Http, false, Some(["speaks TLS", "https://"])),
            (crate::handshake::NO_PLAIN_HTTP_HERE, true, Http, true, None),
            (SETTINGS, false, Grpc, false, None),
            (SETTINGS, false, Grpc, true, Some(["does not speak TLS", "--coordinator http://"])),
            (SETTINGS, false, Http, false, Some(["where workers connect", "dashboard"])),
            (no_tls_here, true, Grpc, false, Some(["speaks TLS", "--join"])),
            (no_tls_here, true, Grpc, true, None),
            (ALERT, true, Grpc, false, Some(["speaks TLS", "--join"])),
            (ALERT, true, Http, false, Some(["speaks TLS", "--token-file"])),
            (b"", false, Grpc, false, Some(["says nothing", "--listen"])),
            (b"", true, Grpc, true, Some(["closes them at once", "its log"])),
        ] {
            let port = server(says, hangs_up).await;
            let found = Obstacle::find(("127.0.0.1", port), protocol, is_encrypted).await;
            let case = format!("{:?}, {protocol:?}, {is_encrypted}: {found:?}", says.escape_ascii().to_string());
            match (found, expected) {
                (None, None) => {}
                (Some(obstacle), Some([what, fix])) => {
                    assert!(obstacle.found.contains(what) && obstacle.fix.contains(fix), "{case}");
                }
                _ => panic!("{case}"),
            }
        }
    }

    #[tokio::test]
    async fn an_address_without_a_server_says_what_it_lacks() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for (host, what, fix) in [
            ("127.0.0.1", "nothing listens there (IPv4)", "--listen 0.0.0.0:"),
            ("no-such-host.invalid", "'no-such-host.invalid' is not known", "--advertise"),
        ] {
            let obstacle = Obstacle::find((host, free), Protocol::Grpc, false).await.unwrap();
            assert!(obstacle.found.contains(what) && obstacle.fix.contains(fix), "{obstacle}");
        }
        let [v4, v6] = ["10.0.0.9:7070", "[2001:db8::9]:7070"].map(|address| address.parse().unwrap());
        for (code, address, what, fix) in [
            (io::ErrorKind::ConnectionRefused.into(), v6, "(IPv6)", "[::]:7070"),
            (io::ErrorKind::NetworkUnreachable.into(), v6, "no way to head:7070 over IPv6", "--advertise"),
            (io::ErrorKind::HostUnreachable.into(), v4, "over IPv4", "ip route"),
            (io::ErrorKind::AddrNotAvailable.into(), v6, "over IPv6", "ip addr"),
            (io::Error::from_raw_os_error(24), v4, "no files left", "ulimit -n"),
            (io::Error::other("odd"), v4, "odd", "check the address"),
        ] {
            let obstacle = Obstacle::of_connecting(&code, "head:7070", address, Protocol::Grpc);
            assert!(obstacle.found.contains(what) && obstacle.fix.contains(fix), "{obstacle}");
        }
    }
}

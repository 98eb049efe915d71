//! The settings for authentication between a coordinator and its workers, and for the access to its dashboard.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use ata_net::{Credentials, Role, Secrets, Security, ServerTls, TlsFiles};
use ata_observe::Access;

use super::Settings;
use crate::failure::{Failure, require};

pub(crate) const DEFAULT_PORT: u16 = 7070;
/// The default address of a coordinator's dashboard; a free port is used if it is taken.
pub(crate) const DEFAULT_DASHBOARD: &str = "127.0.0.1:7071";
const OFF: &str = "off";
/// An address reserved for documentation (RFC 5737): asking the system for the route to it sends nothing.
const ANYWHERE: &str = "192.0.2.1:9";

/// The credentials that a coordinator demands, and the command that starts a worker with them.
pub(crate) struct EntranceSettings {
    pub(crate) security: Arc<Security>,
    pub(crate) join: String,
    pub(crate) token_file: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn listen(&self) -> Result<SocketAddr, Failure> {
        self.listen.parse().map_err(|_| {
            Failure::usage(format!("listen = '{}': expected ADDRESS:PORT, as in 0.0.0.0:7070", self.listen))
        })
    }

    /// Checks the settings as far as possible without reading or creating files.
    pub(super) fn check_security(&self) -> Result<(), Failure> {
        self.listen()?;
        let (has_certificate, has_authority) = (self.tls_cert.is_some(), self.tls_client_ca.is_some());
        require(
            has_certificate == self.tls_key.is_some(),
            || "tls_cert and tls_key go together: expected both, or neither",
        )?;
        require(has_certificate || !has_authority, || "tls_client_ca: expected tls_cert and tls_key, too")?;
        let contradicts = || "insecure and tls_cert contradict each other: expected one of them";
        require(!(self.insecure && has_certificate), contradicts)
    }

    pub(super) fn own_tls_files(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { certificate, key, client_ca: self.tls_client_ca.clone() })
    }

    /// Determines the credentials that a coordinator on this address demands, and makes its own if it needs some and has none.
    pub(crate) fn entrance(&self, bound: SocketAddr) -> Result<EntranceSettings, Failure> {
        let advertised = advertised(self.advertise.as_deref(), bound)?;
        let own = self.own_tls_files();
        if own.is_none() && (bound.ip().is_loopback() || self.insecure) {
            let join = format!("ata worker --coordinator http://{advertised}");
            return Ok(EntranceSettings { security: Arc::new(Security::Open), join, token_file: None });
        }
        if let Some(files) = own.as_ref().filter(|files| files.client_ca.is_some()) {
            let security = Arc::new(Security::Certificates(ServerTls::new(files.clone())?));
            let join =
                format!("ata worker --coordinator https://{advertised} --tls-ca CA --tls-cert CERT --tls-key KEY");
            return Ok(EntranceSettings { security, join, token_file: None });
        }
        let credentials = Credentials::open(&credentials_folder(self.credentials.as_ref())?)?;
        let files = own.unwrap_or_else(|| credentials.tls_files());
        let address = advertised.parse().map_err(|_| bad_advertise(&advertised))?;
        let (token, token_file) = credentials.token(Role::Worker, address, files.pin()?)?;
        let security = Arc::new(Security::Secret(ServerTls::new(files)?, Secrets::of(&credentials)?));
        Ok(EntranceSettings { security, join: format!("ata worker --join {token}"), token_file: Some(token_file) })
    }
}

pub(crate) struct View {
    pub(crate) access: Access,
    pub(crate) url: String,
    /// The file with the token for `ata status`, if access requires one.
    pub(crate) token_file: Option<PathBuf>,
}

impl Settings {
    /// Returns the address of the dashboard: `None` if it is off, `default` if the setting is missing.
    pub(crate) fn dashboard_or(&self, default: &str) -> Result<Option<SocketAddr>, Failure> {
        let text = self.dashboard.as_deref().unwrap_or(default);
        if text == OFF {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            Failure::usage(format!("dashboard = '{text}': expected ADDRESS:PORT, as in {DEFAULT_DASHBOARD}, or off"))
        })
    }

    /// Returns the access to a dashboard on this address: on loopback, all users of this machine; elsewhere, by the status secret.
    pub(crate) fn dashboard_view(&self, bound: SocketAddr) -> Result<View, Failure> {
        if bound.ip().is_loopback() {
            return Ok(View { access: Access::Local, url: format!("http://{bound}"), token_file: None });
        }
        // The port of the coordinator is removed, if it is part of the advertised address.
        let host = self.advertise.as_deref().map(|host| match host.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() && !name.ends_with(':') => name,
            _ => host,
        });
        let address = advertised(host, bound)?;
        if self.insecure {
            return Ok(View { access: Access::Anyone, url: format!("http://{address}"), token_file: None });
        }
        let credentials = Credentials::open(&credentials_folder(self.credentials.as_ref())?)?;
        let own = self.own_tls_files().map(|own| TlsFiles { client_ca: None, ..own });
        let files = own.unwrap_or_else(|| credentials.tls_files());
        let authority = address.parse().map_err(Failure::usage)?;
        let (_, token_file) = credentials.token(Role::Status, authority, files.pin()?)?;
        let access = Access::Secret(Box::new(ServerTls::new(files)?), Secrets::of(&credentials)?);
        Ok(View { access, url: format!("https://{address}"), token_file: Some(token_file) })
    }
}

/// Returns the user's data folder of ata: `~/.local/share/ata`.
pub(crate) fn data_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("ata"))
}

/// Returns the folder of a coordinator's credentials: the chosen one, or the default in the user's data folder.
pub(crate) fn credentials_folder(chosen: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    chosen
        .cloned()
        .or_else(|| data_folder().map(|data| data.join("credentials")))
        .ok_or_else(|| Failure::usage("there is no home folder for the coordinator's key: choose one by --credentials"))
}

/// Returns the `HOST:PORT` under which workers reach a coordinator.
pub(crate) fn advertised(chosen: Option<&str>, bound: SocketAddr) -> Result<String, Failure> {
    let host = match chosen {
        None => reachable(bound.ip()),
        Some(host) if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) => format!("[{host}]"),
        Some(host) => host.to_owned(),
    };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    let address = if has_port { host } else { format!("{host}:{}", bound.port()) };
    let is_address = address.parse::<ata_net::Endpoint>().is_ok() && !address.contains("://");
    if is_address { Ok(address) } else { Err(bad_advertise(&address)) }
}

fn bad_advertise(address: &str) -> Failure {
    Failure::usage(format!("advertise = '{address}': expected HOST or HOST:PORT, as workers reach this machine"))
}

/// Returns the address that this machine listens on or, if it is unspecified, that of its outgoing connections, or its name.
fn reachable(ip: IpAddr) -> String {
    let outgoing = || {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect(ANYWHERE).ok()?;
        let ip = socket.local_addr().ok()?.ip();
        (!ip.is_unspecified()).then(|| ip.to_string())
    };
    let name = || hostname::get().ok()?.into_string().ok();
    match ip {
        ip if ip.is_unspecified() => outgoing().or_else(name).unwrap_or_else(|| "HOST".into()),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_open_and_needs_no_files() {
        for (listen, insecure) in [("127.0.0.1:7", false), ("[::1]:7", false), ("10.1.2.3:7", true)] {
            let credentials = Some(std::env::temp_dir().join("never-made"));
            let settings = Settings { credentials, insecure, ..Settings::default() };
            let entrance = settings.entrance(listen.parse().unwrap()).unwrap();
            assert!(matches!(*entrance.security, Security::Open));
            assert_eq!(entrance.join, format!("ata worker --coordinator http://{listen}"));
        }
    }

    #[test]
    fn addresses_that_workers_are_told() {
        let bound = "0.0.0.0:7070".parse().unwrap();
        for (chosen, told) in [
            ("head", "head:7070"),
            ("head.example.org:99", "head.example.org:99"),
            ("10.0.0.1", "10.0.0.1:7070"),
            ("fe80::1", "[fe80::1]:7070"),
            ("[fe80::1]:5", "[fe80::1]:5"),
        ] {
            assert_eq!(advertised(Some(chosen), bound).unwrap(), told);
        }
        for bad in ["", "a b", "http://head", "head:x", "head:0"] {
            assert!(advertised(Some(bad), bound).is_err(), "{bad}");
        }
        assert!(advertised(None, bound).unwrap().ends_with(":7070"));
    }

    #[test]
    fn elsewhere_a_dashboard_takes_the_status_secret() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings { credentials: Some(folder.path().join("c")), ..Settings::default() };
        settings.advertise = Some("head:7070".into());
        let view = settings.dashboard_view("10.1.2.3:7071".parse().unwrap()).unwrap();
        assert_eq!(view.url, "https://head:7071");
        assert!(matches!(view.access, Access::Secret(..)) && view.token_file.unwrap().ends_with("status-token"));
        settings.insecure = true;
        let view = settings.dashboard_view("10.1.2.3:7071".parse().unwrap()).unwrap();
        assert!(matches!(view.access, Access::Anyone) && view.url == "http://head:7071");
        let view = settings.dashboard_view("127.0.0.1:7071".parse().unwrap()).unwrap();
        assert!(matches!(view.access, Access::Local));
    }
}

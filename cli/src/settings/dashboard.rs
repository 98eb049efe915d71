//! The dashboard's address and its access control.

use std::net::SocketAddr;
use std::path::PathBuf;

use ata_net::{Credentials, Role, Secrets, ServerTls, TlsFiles};
use ata_observe::Access;

use super::Settings;
use super::security::{advertised, credentials_folder};
use crate::failure::Failure;

/// The default address of a coordinator's dashboard; a free port is used if it is taken.
pub(crate) const DEFAULT_DASHBOARD: &str = "127.0.0.1:7071";
const OFF: &str = "off";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elsewhere_it_takes_the_status_secret() {
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

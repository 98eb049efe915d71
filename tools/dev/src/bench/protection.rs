//! Coordinators with and without TLS, to measure its cost.

use std::net::SocketAddr;
use std::sync::Arc;

use ata::Failure;
use ata_net::{Credentials, Endpoint, Secrets, Security, ServerTls};

/// The protection of a coordinator, and the matching credentials of a worker.
pub(crate) struct Protection {
    pub(crate) security: Arc<Security>,
    credentials: Option<Credentials>,
}

impl Protection {
    /// Returns no protection, as on loopback.
    pub(crate) fn none() -> Self {
        Self { security: Arc::new(Security::Open), credentials: None }
    }

    /// Returns the protection of an open address, with temporary credentials.
    pub(crate) fn tls() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("ata-bench-credentials-{}", std::process::id()));
        let credentials = Credentials::open(&folder)?;
        let security = Security::Secret(ServerTls::new(credentials.tls_files())?, Secrets::of(&credentials)?);
        Ok(Self { security: Arc::new(security), credentials: Some(credentials) })
    }

    /// Returns the endpoint of the coordinator at an address, for a worker.
    pub(crate) fn endpoint(&self, address: SocketAddr) -> Result<Endpoint, Failure> {
        let text = address.to_string();
        let Some(credentials) = &self.credentials else { return Ok(text.parse()?) };
        let pin = credentials.tls_files().pin()?;
        let (token, _) = credentials.token(ata_net::Role::Worker, text.parse().map_err(Failure::internal)?, pin)?;
        Ok(token.into())
    }

    /// Returns its name in figures.
    pub(crate) fn name(&self) -> &'static str {
        if self.credentials.is_some() { "gRPC and TLS" } else { "gRPC" }
    }
}

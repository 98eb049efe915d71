//! A coordinator with TLS or without, to see what it costs.

use std::net::SocketAddr;
use std::sync::Arc;

use ata_net::{Credentials, Endpoint, Secrets, Security, ServerTls};

use crate::BenchError;

/// What a coordinator demands, and the credentials for it.
pub(crate) struct Protection {
    pub(crate) security: Arc<Security>,
    credentials: Option<Credentials>,
}

impl Protection {
    /// As on loopback.
    pub(crate) fn none() -> Self {
        Self { security: Arc::new(Security::Open), credentials: None }
    }

    /// As on an open address, with credentials that are thrown away.
    pub(crate) fn tls() -> Result<Self, BenchError> {
        let folder = std::env::temp_dir().join(format!("ata-bench-credentials-{}", std::process::id()));
        let credentials = Credentials::open(&folder)?;
        let security = Security::Secret(ServerTls::new(credentials.tls_files())?, Secrets::of(&credentials)?);
        Ok(Self { security: Arc::new(security), credentials: Some(credentials) })
    }

    /// The coordinator at an address, as a worker knows it.
    pub(crate) fn endpoint(&self, address: SocketAddr) -> Result<Endpoint, BenchError> {
        let text = address.to_string();
        let Some(credentials) = &self.credentials else { return Ok(text.parse()?) };
        let pin = credentials.tls_files().pin()?;
        let (token, _) = credentials.token(ata_net::Role::Worker, text.parse().map_err(BenchError::other)?, pin)?;
        Ok(token.into())
    }

    /// How figures call it.
    pub(crate) fn name(&self) -> &'static str {
        if self.credentials.is_some() { "gRPC and TLS" } else { "gRPC" }
    }
}

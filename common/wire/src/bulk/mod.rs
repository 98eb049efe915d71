//! The coordinator's side of the service `Transfers`, without generated code: bytes go from buffers to HTTP/2 frames and back.

mod parameter_body;
mod reader;
mod server;

pub use reader::Reader;
pub use server::{TransferRouter, Transfers};

use http::HeaderValue;

pub(crate) const PARAMETERS: &str = "/ata.v1.Transfers/Parameters";
pub(crate) const SUBMIT_GRADIENT: &str = "/ata.v1.Transfers/SubmitGradient";

pub(crate) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

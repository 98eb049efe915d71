//! Implements the service `Transfers` without generated code: bytes go from buffers to HTTP/2 frames and back.

mod client;
mod parameter_body;
mod reader;
mod server;

pub(crate) use client::{parameters, submit_gradient};
pub use reader::Reader;
pub use server::{TransferRouter, Transfers};

use http::HeaderValue;

const PARAMETERS: &str = "/ata.v1.Transfers/Parameters";
const SUBMIT_GRADIENT: &str = "/ata.v1.Transfers/SubmitGradient";

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

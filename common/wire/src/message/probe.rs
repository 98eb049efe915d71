//! The messages of a probe, which measures the link to the coordinator.

use super::{RunSpec, WireError, at_most, check_protocol, invalid, truncated};
use crate::limits::{LEAST_PROBE_REQUEST, MAX_PROBE_BYTES, PROBE_REQUEST_PADDING};
use crate::{PROTOCOL, proto};

/// The coordinator's answer to a probe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeSummary {
    /// The version of the coordinator's program.
    pub version: String,
    /// The run's name.
    pub run_id: String,
    /// The specification of the run.
    pub run: RunSpec,
    /// The number of bytes of padding that arrived.
    pub padding_bytes: u64,
}

impl From<ProbeSummary> for proto::ProbeSummary {
    fn from(summary: ProbeSummary) -> Self {
        let ProbeSummary { version, run_id, run, padding_bytes } = summary;
        Self { protocol: PROTOCOL, version, run_id, run: Some(run.into_wire()), padding_bytes }
    }
}

impl TryFrom<proto::ProbeSummary> for ProbeSummary {
    type Error = WireError;

    fn try_from(summary: proto::ProbeSummary) -> Result<Self, WireError> {
        let proto::ProbeSummary { protocol, version, run_id, run, padding_bytes } = summary;
        check_protocol(protocol)?;
        let (version, run_id, run) = (truncated(version), truncated(run_id), RunSpec::from_wire(run)?);
        Ok(Self { version, run_id, run, padding_bytes: at_most("padding_bytes", padding_bytes, MAX_PROBE_BYTES)? })
    }
}

/// Adds up the padding in the requests of a probe.
#[derive(Debug, Default)]
pub struct ProbeIntake {
    /// Bytes of padding that arrived.
    pub padding_bytes: u64,
    /// Bytes of padding, with each request counted as at least [`LEAST_PROBE_REQUEST`] bytes.
    counted: u64,
    /// Bytes of padding that the first request asks for.
    answer: Option<u64>,
}

impl ProbeIntake {
    /// Adds a request. Returns an error if the probe carries more than the limit.
    pub fn take(&mut self, request: &proto::ProbeRequest) -> Result<(), WireError> {
        at_most("answer_bytes", *self.answer.get_or_insert(request.answer_bytes), MAX_PROBE_BYTES)?;
        if request.padding.len() > PROBE_REQUEST_PADDING {
            let expected = format!("{PROBE_REQUEST_PADDING} bytes at most in a request");
            return Err(invalid("padding", format!("{} bytes", request.padding.len()), expected));
        }
        self.padding_bytes += request.padding.len() as u64;
        self.counted += request.padding.len().max(LEAST_PROBE_REQUEST) as u64;
        if self.counted > MAX_PROBE_BYTES + LEAST_PROBE_REQUEST as u64 {
            return Err(invalid("padding", "more", format!("{MAX_PROBE_BYTES} bytes at most")));
        }
        Ok(())
    }

    /// Returns the bytes of padding to send in the answer.
    pub fn answer_bytes(&self) -> u64 {
        self.answer.unwrap_or(0)
    }
}

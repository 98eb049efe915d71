//! Mutated calls to a live coordinator, over real gRPC.

use std::future::poll_fn;
use std::net::SocketAddr;

use ata_mutator::{Fed, Mutator};
use ata_wire::SessionToken;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Version};
use http_body::Frame;
use http_body_util::StreamBody;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower_service::Service;

use crate::frames::{Frames, prefixed};
use crate::soon;

/// Every RPC: its path, the kind of its frames, and whether a frame is a message, which is prefixed after it is mutated.
const RPCS: [(&str, Frames, bool); 5] = [
    ("/ata.v1.Coordinator/Session", Frames::FromWorker, true),
    ("/ata.v1.Coordinator/Data", Frames::DataRequest, true),
    ("/ata.v1.Coordinator/Probe", Frames::ProbeRequest, true),
    ("/ata.v1.Transfers/Parameters", Frames::ParametersRequest, true),
    ("/ata.v1.Transfers/SubmitGradient", Frames::Gradient, false),
];

/// Returns the paths of all RPCs.
pub fn paths() -> [&'static str; RPCS.len()] {
    RPCS.map(|(path, ..)| path)
}

/// A client that sends mutated calls of every RPC in turn.
pub struct Flood {
    address: SocketAddr,
    channel: Channel,
    mutators: Vec<Mutator>,
}

impl Flood {
    /// Connects to a coordinator. The calls will be mutations of valid ones in the session of this token.
    pub async fn connect(address: SocketAddr, session: SessionToken) -> Self {
        let mutator = |(seed, (_, frames, _)): (u64, &(_, Frames, _))| Mutator::new(seed, frames.examples(session));
        Self { address, channel: open(address).await, mutators: (1..).zip(&RPCS).map(mutator).collect() }
    }

    /// Sends `calls` calls, one after the other, and counts those that succeeded, or began to, as accepted.
    /// Panics if the coordinator does not respond to a call.
    pub async fn send(&mut self, calls: u64) -> Fed {
        let mut answers = Fed { accepted: 0, refused: 0 };
        for call in 0..calls {
            let at = call as usize % RPCS.len();
            let (path, _, is_message) = RPCS[at];
            let input = self.mutators[at].next_input();
            let body = if is_message { prefixed(&input) } else { input };
            let is_accepted = match soon("an answer", self.call(path, body)).await {
                Code::Ok => true,
                Code::Unknown | Code::Internal | Code::Cancelled => {
                    // Some inputs end the connection.
                    self.channel = open(self.address).await;
                    false
                }
                _ => false,
            };
            *(if is_accepted { &mut answers.accepted } else { &mut answers.refused }) += 1;
        }
        answers
    }

    async fn call(&mut self, path: &'static str, body: Vec<u8>) -> Code {
        let frame = Ok::<_, Status>(Frame::data(Bytes::from(body)));
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(path)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
            .body(Body::new(StreamBody::new(tokio_stream::once(frame))))
            .expect("a valid request");
        if poll_fn(|cx| self.channel.poll_ready(cx)).await.is_err() {
            return Code::Unknown;
        }
        let Ok(response) = self.channel.call(request).await else { return Code::Unknown };
        Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code())
    }
}

async fn open(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("the coordinator is there")
}

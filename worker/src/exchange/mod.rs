//! Steps that are exchanged in shards: workers add up their sums, and pass parameters on, among each other.
//!
//! Chunk c of a vector belongs to the member at place c mod n of the exchange's n members. The owner of a chunk gets it from the
//! others, adds it up, and sends the total to the coordinator. When it gets the stepped chunk back, it passes it on. Members
//! open calls to each other as workers do to the coordinator, so that bytes, checks and flow control are the same.
//!
//! Each member tells the coordinator how the exchange went, and what came from whom in what time. If something goes wrong, the
//! coordinator asks all members for their sums as in a star, from the first chunk on that it lacks, and sends whole sets to those that
//! lack parameters. Who is to blame is decided there, by what both ends of each way say.
//!
//! # Layout
//! - `member`: the part that this worker has in one exchange
//! - `owner`: adds up the chunks that belong to this worker
//! - `passing`: the parameters that another member passes on
//! - `tally`: how the ways from the other members go
//! - `peers`: answers the calls of other workers

mod member;
mod owner;
mod passing;
mod peers;
mod tally;

pub(crate) use member::{Connections, ExchangeEvent, MemberExchange, Outcome};
pub(crate) use peers::PeerServer;

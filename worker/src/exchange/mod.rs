//! Steps that are exchanged in shards: workers add up their sums, and pass parameters on, among each other.
//!
//! Chunk c of a vector belongs to the member at place c mod n of the exchange's n members. The owner of a chunk gets it from the
//! others, adds it up, and sends the total to the coordinator. When it gets the stepped chunk back, it passes it on. Members
//! open calls to each other as workers do to the coordinator, so that bytes, checks and flow control are the same.
//!
//! Whatever goes wrong is reported to the coordinator, which then asks all members for their sums as in a star, from the first
//! chunk on that it lacks, and sends whole sets.
//!
//! # Layout
//! - `member`: the part that this worker has in one exchange
//! - `owner`: adds up the chunks that belong to this worker
//! - `peers`: answers the calls of other workers

mod member;
mod owner;
mod peers;

pub(crate) use member::{Connections, Exchange, ExchangeEvent, Outcome};
pub(crate) use peers::PeerServer;

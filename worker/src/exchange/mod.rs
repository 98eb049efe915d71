//! Exchanges in shards, in which workers add up their sums and pass on parameters among themselves.
//!
//! In an exchange of n members, chunk c of a vector belongs to the member at place c mod n, its owner. The owner receives the chunk from
//! the other members, adds them up, and sends the total to the coordinator. When it receives the stepped chunk, it passes it on to the
//! others. Members call each other as workers call the coordinator, so that encoding, checks and flow control are the same.
//!
//! Each member reports to the coordinator how the exchange went, with the bytes and time of each other member. If something fails, the
//! coordinator asks all members for their sums as in a star, starting at the first missing chunk, and sends whole sets to members that lack
//! parameters. The coordinator decides which member is at fault, from the reports of both ends.
//!
//! # Layout
//! - `member`: this worker's part in one exchange
//! - `owner`: adds up the chunks that belong to this worker
//! - `passing`: receives the parameters that another member passes on
//! - `tally`: measures the transfers from the other members
//! - `peers`: answers the calls of other workers

mod member;
mod owner;
mod passing;
mod peers;
mod tally;

pub(crate) use member::{Connections, ExchangeEvent, MemberExchange};
pub(crate) use peers::PeerServer;

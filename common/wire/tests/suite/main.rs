//! Messages, transfers and connections, good and hostile.

mod connections;
mod hostile;
mod messages;
mod transfers;

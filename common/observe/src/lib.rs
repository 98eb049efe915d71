//! What a run looks like from outside: dashboard, report, explanations, metrics.
//!
//! Everything here listens to a run's events ([`ata_record::Listener`]), or reads them from its journal; nothing calls the
//! coordinator.
//!
//! # Layout
//! - `view`: [`View`], a run as it is shown, and what a page is sent of it
//! - `explain`: why each worker has the tasks that it has
//! - `live`: [`Live`], a view that listens to a run; `follow`: one that follows a journal
//! - `page`: the page itself, from `assets`
//! - `server`: the HTTP server; `events`: what those who watch are sent; `access`: who may read; `client`: asking another one
//! - `metrics`: [`Metrics`], for Prometheus
//! - `tensorboard`: [`TensorBoard`], event files

mod access;
mod client;
mod events;
mod explain;
mod follow;
mod live;
mod metrics;
mod page;
mod server;
mod tensorboard;
#[cfg(test)]
mod testing;
mod view;

pub use access::Access;
pub use client::{Client, ClientError};
pub use explain::{Explained, Explanation, explain};
pub use follow::{explained_at, follow, viewed};
pub use live::Live;
pub use metrics::{Described, Metrics};
pub use page::report;
pub use server::{App, Costs, Source, serve};
pub use tensorboard::TensorBoard;
pub use view::{CostRow, Cursor, Message, Prices, View, WorkerPrice};

/// A time to read: `1.5 ms`, `250 ms`, `2.50 s`, `100 s`.
pub fn seconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0} s"),
        value if value >= 1.0 => format!("{value:.2} s"),
        value if value >= 0.1 => format!("{:.0} ms", value * 1e3),
        value => format!("{:.1} ms", value * 1e3),
    }
}

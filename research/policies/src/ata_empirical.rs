//! ATA-Empirical: ATA with a bound that scales with each worker's own mean.
//!
//! Source: the ATA paper (arXiv 2502.00775), section 5, "ATA-Empirical".

use crate::ata::{TIGHT_ALPHA_PER_MEAN, decide_by_score, exploration, published_runs};
use ata_scheduler::policy::{PolicyEntry, PolicyKind, stateless};

/// ATA with lower bounds relative to each worker's mean: scores s_i = m_i · max(1 − 2η(√(L/K_i) + L/K_i), 0) with
/// L = ln(2k²), and 0 before the first observation; a = RAS(s).
///
/// η bounds α_i/μ_i, the ψ1 norm of worker i's task-time noise relative to its mean: a pure number.
pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "ata-empirical",
    about: "ATA with bounds relative to each worker's mean",
    parameters: "eta=NUMBER (default: 0.766), or preset=printed|published-runs",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let eta = if published_runs(arguments)? {
            4.0 * std::f64::consts::E
        } else {
            arguments.positive("eta")?.unwrap_or(TIGHT_ALPHA_PER_MEAN)
        };
        Ok(stateless("ata-empirical", move |round, rng| {
            let exploration = exploration(round);
            let bound = |mean_s, observed| mean_s * (1.0 - 2.0 * eta * exploration(observed)).max(0.0);
            decide_by_score(round, round.bounds(0.0, bound), rng)
        }))
    },
};

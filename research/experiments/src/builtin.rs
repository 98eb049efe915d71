//! The built-in experiments.

/// Includes an experiment that is hard for policies. All of these compare the policies that `hard-cases.toml` names.
macro_rules! hard_case {
    ($file:literal) => {
        concat!(include_str!("../builtin/hard-cases.toml"), include_str!(concat!("../builtin/", $file)))
    };
}

/// The name and the text of each built-in experiment.
pub const BUILTIN_EXPERIMENTS: &[(&str, &str)] = &[
    ("ata-quadratic", include_str!("../builtin/ata-quadratic.toml")),
    ("ata-cifar100", include_str!("../builtin/ata-cifar100.toml")),
    ("ata-sizes", include_str!("../builtin/ata-sizes.toml")),
    ("ata-sqrt", include_str!("../builtin/ata-sqrt.toml")),
    ("ata-heterogeneous", include_str!("../builtin/ata-heterogeneous.toml")),
    ("ata-regret", include_str!("../builtin/ata-regret.toml")),
    ("ata-warm-start", include_str!("../builtin/ata-warm-start.toml")),
    ("cmab-regression", include_str!("../builtin/cmab-regression.toml")),
    ("speed-change", include_str!("../builtin/speed-change.toml")),
    ("frontier", include_str!("../builtin/frontier.toml")),
    ("overcommit", include_str!("../builtin/overcommit.toml")),
    ("common-mode", hard_case!("common-mode.toml")),
    ("drift", hard_case!("drift.toml")),
    ("near-ties", hard_case!("near-ties.toml")),
    ("heavy-tails", hard_case!("heavy-tails.toml")),
    ("hidden-gem", hard_case!("hidden-gem.toml")),
    ("small-tasks", hard_case!("small-tasks.toml")),
    ("independent-changes", hard_case!("independent-changes.toml")),
    ("many-workers", hard_case!("many-workers.toml")),
];

/// Returns the names of the built-in experiments and suites.
pub fn experiment_names() -> impl Iterator<Item = &'static str> {
    BUILTIN_EXPERIMENTS.iter().chain(super::suite::SUITES).map(|(name, _)| *name)
}

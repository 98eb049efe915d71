//! Flags of other programs for distributed training, and their equivalents.

const EPOCHS: &str =
    "ata counts optimizer steps and not epochs: --iterations K. A step takes --task-batch × --budget samples";

const BATCH: &str = "A step takes --task-batch × --budget samples: --task-batch S is the part that a worker computes at a time, and \
                     --budget B is the number of such parts";

const WORKERS: &str = "`ata up --workers N` starts N workers on this machine, and --devices all one per GPU; on other machines, each \
                       `ata worker` is one worker";

const RENDEZVOUS: &str = "Workers have no ranks, and may join at any time: start `ata coordinator` on one machine, and on the others \
                          the `ata worker --join TOKEN` that it prints";

/// The foreign flags, without leading hyphens, and the hint for each.
const FOREIGN: [(&str, &str); 23] = [
    ("epochs", EPOCHS),
    ("num-epochs", EPOCHS),
    ("max-epochs", EPOCHS),
    ("steps", EPOCHS),
    ("max-steps", EPOCHS),
    ("batch-size", BATCH),
    ("batch", BATCH),
    ("global-batch-size", BATCH),
    ("micro-batch-size", BATCH),
    ("per-device-train-batch-size", BATCH),
    ("gradient-accumulation-steps", BATCH),
    ("workers-per-node", WORKERS),
    ("nproc-per-node", WORKERS),
    ("num-workers", WORKERS),
    ("num-processes", WORKERS),
    ("gpus", WORKERS),
    ("nnodes", RENDEZVOUS),
    ("node-rank", RENDEZVOUS),
    ("world-size", RENDEZVOUS),
    ("rank", RENDEZVOUS),
    ("master-addr", RENDEZVOUS),
    ("rdzv-endpoint", RENDEZVOUS),
    ("learning-rate", "The learning rate is --lr X"),
];

/// Returns the hint for a foreign flag.
pub(super) fn meaning(flag: &str) -> Option<&'static str> {
    let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default().replace('_', "-");
    FOREIGN.iter().find_map(|(foreign, meaning)| (*foreign == name).then_some(*meaning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn no_flag_of_our_own_is_foreign() {
        for command in Cli::command().get_subcommands() {
            for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert_eq!(meaning(flag), None, "{flag}");
            }
        }
        assert_eq!(meaning("--batch_size=4"), Some(BATCH));
    }
}

//! Flags of other programs for distributed training, and their equivalents.

/// The foreign flags, without leading hyphens, and the hint for those of a line.
const FOREIGN: [(&str, &str); 5] = [
    (
        "epochs num-epochs max-epochs steps max-steps",
        "--iterations 30epochs, or --iterations K for K optimizer steps. A step takes --batch N samples, or --task-batch × --budget",
    ),
    (
        "batch-size global-batch-size micro-batch-size per-device-train-batch-size gradient-accumulation-steps",
        "A step takes --batch N samples. ata divides them into parts that a worker computes at a time; --task-batch S and \
         --budget B give their size and number instead",
    ),
    (
        "workers-per-node nproc-per-node num-workers num-processes gpus",
        "`ata up --workers N` starts N workers on this machine, and --devices all one per GPU; on other machines, each \
         `ata worker` is one worker",
    ),
    (
        "nnodes node-rank world-size rank master-addr rdzv-endpoint",
        "Workers have no ranks, and may join at any time: start `ata coordinator` on one machine, and on the others \
         the `ata worker --join TOKEN` that it prints",
    ),
    ("learning-rate", "The learning rate is --lr X"),
];

pub(super) fn meaning(flag: &str) -> Option<&'static str> {
    let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default().replace('_', "-");
    FOREIGN.iter().find_map(|(flags, meaning)| flags.split(' ').any(|flag| flag == name).then_some(*meaning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flag_of_our_own_is_foreign() {
        let ata = crate::args::command();
        for flag in ata.get_subcommands().flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long) {
            assert_eq!(meaning(flag), None, "{flag}");
        }
        assert_eq!(meaning("--batch_size=4"), Some(FOREIGN[1].1));
    }
}

//! The settings for untrusted workers.

use ata_learn::Aggregate;
use ata_scheduler::{PolicyKind, policy_kind};

use super::Settings;
use crate::failure::Failure;

/// Bytes that the gradients of one iteration may take if a robust estimate needs all of them at once: four of the largest model,
/// or 250 leases of ResNet-20 at sixteen times its width.
const MAX_GRADIENT_BYTES: u64 = 4 << 30;

/// Leases of which there must be at least as many: the median of two is their mean.
const FEWEST_LEASES: u64 = 3;

impl Settings {
    /// How the gradients of an iteration are combined.
    pub(crate) fn aggregate(&self) -> Result<Aggregate, Failure> {
        self.aggregate.parse().map_err(|error| Failure::usage(format!("aggregate = {error}")))
    }

    pub(super) fn check_trust(&self) -> Result<(), Failure> {
        let kind = policy_kind(&self.policy);
        let Self { policy, aggregate, verify, budget, .. } = self;
        let refuse = |refused: bool, why: String| if refused { Err(Failure::usage(why)) } else { Ok(()) };
        if self.aggregate()? != Aggregate::Mean {
            refuse(
                kind == PolicyKind::Asynchronous,
                format!("aggregate = {aggregate}: each step of policy '{policy}' has one gradient; expected mean"),
            )?;
            refuse(
                *budget < FEWEST_LEASES,
                format!(
                    "aggregate = {aggregate}: an iteration of {budget} task(s) has too few gradients; expected mean"
                ),
            )?;
        }
        refuse(!(0.0..=1.0).contains(verify), format!("verify = {verify}: expected a share from 0 to 1"))?;
        if *verify > 0.0 {
            let waits = kind == PolicyKind::Barrier && self.overcommit == 0.0;
            refuse(
                !waits,
                format!(
                    "verify = {verify}: policy '{policy}' with overcommit = {} does not wait for all tasks, so that a lease is \
                     over before it could be checked; expected a barrier policy (see `ata policies`) without overcommit",
                    self.overcommit
                ),
            )?;
        }
        Ok(())
    }

    /// Refuses an aggregate that would keep more gradients of so many parameters than fit a head node's memory.
    pub(crate) fn check_aggregate_memory(&self, parameters: u64) -> Result<(), Failure> {
        let bytes = self.budget.saturating_mul(4 * parameters);
        if self.aggregate()? == Aggregate::Mean || bytes <= MAX_GRADIENT_BYTES {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "aggregate = {}: keeps a gradient per lease of an iteration, up to {} tasks of {parameters} parameters, which is \
             {:.1} GiB: expected at most {} GiB. Use a smaller budget with a larger task_batch",
            self.aggregate,
            self.budget,
            bytes as f64 / f64::from(1 << 30),
            MAX_GRADIENT_BYTES >> 30
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(&mut Settings)) -> Result<(), String> {
        let mut settings = Settings::default();
        change(&mut settings);
        settings
            .check_trust()
            .and_then(|()| settings.check_aggregate_memory(1 << 20))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn what_cannot_be_combined_is_refused() {
        let policy = |settings: &mut Settings, policy: &str| settings.policy = policy.into();
        let aggregate = |settings: &mut Settings, aggregate: &str| settings.aggregate = aggregate.into();
        assert_eq!(check(|settings| aggregate(settings, "trimmed:0.2")), Ok(()));
        assert_eq!(check(|settings| (settings.verify, settings.seed) = (1.0, 2)), Ok(()));
        assert_eq!(
            check(|settings| {
                aggregate(settings, "median");
                policy(settings, "gta");
            }),
            Ok(())
        );
        for (message, refused) in [
            ("expected mean, median, or trimmed:X", check(|settings| aggregate(settings, "trimmed:0.5"))),
            (
                "has one gradient",
                check(|settings| {
                    aggregate(settings, "median");
                    policy(settings, "asgd");
                }),
            ),
            (
                "too few gradients",
                check(|settings| {
                    aggregate(settings, "median");
                    settings.budget = 2;
                }),
            ),
            (
                "4.5 GiB: expected at most 4 GiB",
                check(|settings| {
                    aggregate(settings, "median");
                    settings.budget = 1152;
                }),
            ),
            ("expected a share from 0 to 1", check(|settings| settings.verify = 1.5)),
            ("expected a share from 0 to 1", check(|settings| settings.verify = f64::NAN)),
            (
                "does not wait for all tasks",
                check(|settings| {
                    settings.verify = 0.1;
                    policy(settings, "gta");
                }),
            ),
            (
                "does not wait for all tasks",
                check(|settings| {
                    settings.verify = 0.1;
                    policy(settings, "ringmaster");
                }),
            ),
            ("does not wait for all tasks", check(|settings| (settings.verify, settings.overcommit) = (0.1, 0.2))),
        ] {
            let refused = refused.unwrap_err();
            assert!(refused.contains(message), "{refused}");
        }
    }
}

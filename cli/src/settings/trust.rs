//! The settings for untrusted workers.

use ata_policies::POLICIES;
use ata_scheduler::PolicyKind;

use super::Settings;
use crate::failure::Failure;

impl Settings {
    pub(super) fn check_trust(&self) -> Result<(), Failure> {
        let Self { policy, verify, overcommit, .. } = self;
        if !(0.0..=1.0).contains(verify) {
            return Err(Failure::usage(format!("verify = {verify}: expected a share from 0 to 1")));
        }
        let waits = POLICIES.kind(policy) == PolicyKind::Barrier && *overcommit == 0.0;
        if *verify > 0.0 && !waits {
            return Err(Failure::usage(format!(
                "verify = {verify}: policy '{policy}' with overcommit = {overcommit} does not wait for all tasks, so that a lease is \
                 over before it could be checked; expected a barrier policy (see `ata policies`) without overcommit"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_checked_is_refused() {
        let check = |policy: &str, verify, overcommit| {
            let settings = Settings { policy: policy.into(), verify, overcommit, ..Settings::default() };
            settings.check_trust().map_err(|failure| failure.to_string())
        };
        assert_eq!(check("ata-auto", 1.0, 0.0), Ok(()));
        for (message, refused) in [
            ("expected a share from 0 to 1", check("ata-auto", 1.5, 0.0)),
            ("expected a share from 0 to 1", check("ata-auto", f64::NAN, 0.0)),
            ("does not wait for all tasks", check("gta", 0.1, 0.0)),
            ("does not wait for all tasks", check("ringmaster", 0.1, 0.0)),
            ("does not wait for all tasks", check("ata-auto", 0.1, 0.2)),
        ] {
            let refused = refused.unwrap_err();
            assert!(refused.contains(message), "{refused}");
        }
    }
}

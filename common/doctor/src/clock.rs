//! Checks the wall clock. A run does not depend on it, but certificates have a period of validity.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::finding::Finding;
use crate::machine::MachineReport;

const CHECK: &str = "clock";

/// The file that systemd's time service creates once it has set the clock.
const SYNCHRONISED: &str = "/run/systemd/timesync/synchronized";

/// The difference from another clock above which a clock counts as wrong: clocks synchronised by NTP differ by milliseconds.
const FAR: Duration = Duration::from_secs(30);

const FIX: &str =
    "timedatectl set-ntp true, or set it by hand (date --set): certificates are refused before and after their time";

/// Returns this machine's wall clock.
#[expect(clippy::disallowed_methods, reason = "it is what is checked")]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Checks that the clock is not earlier than a past event: the time at which this program was written to disk.
pub fn check(machine: &MachineReport) -> Finding {
    let program = std::env::current_exe().and_then(fs::metadata).and_then(|file| file.modified());
    against(now(), program.unwrap_or(UNIX_EPOCH), machine.exists(SYNCHRONISED))
}

fn against(now: SystemTime, written: SystemTime, is_synchronised: bool) -> Finding {
    let shown = humantime::format_rfc3339_seconds(now.max(UNIX_EPOCH));
    match written.duration_since(now) {
        Ok(early) if early > FAR => {
            let written = humantime::format_rfc3339_seconds(written);
            Finding::warning(CHECK, format!("it is {shown}, and this program was made at {written}"), FIX)
        }
        _ if is_synchronised => Finding::ok(CHECK, format!("{shown}, synchronised")),
        _ => Finding::ok(CHECK, format!("{shown}; whether it is synchronised is not known")),
    }
}

/// Compares the clock with the coordinator's, which was `theirs` at some time between `before` and `after`.
pub fn compare(theirs: Duration, before: SystemTime, after: SystemTime) -> Finding {
    let theirs = UNIX_EPOCH + theirs;
    let (early, late) = (theirs.duration_since(after), before.duration_since(theirs));
    let found = match (early, late) {
        (Ok(by), _) if by > FAR => format!("{} behind the coordinator's", rounded(by)),
        (_, Ok(by)) if by > FAR => format!("{} ahead of the coordinator's", rounded(by)),
        _ => return Finding::ok(CHECK, "as the coordinator's"),
    };
    Finding::warning(CHECK, format!("{found}: expected at most {}", rounded(FAR)), format!("on both machines: {FIX}"))
}

fn rounded(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_clock_before_the_program_is_wrong() {
        let finding = against(at(1_000), at(1_800_000_000), true);
        assert_eq!(finding.status, Status::Warning);
        assert!(finding.found.contains("1970-01-01T00:16:40Z"), "{}", finding.found);
        assert!(against(at(1_800_000_001), at(1_800_000_000), true).found.ends_with("synchronised"));
        assert_eq!(against(at(1_800_000_001), at(1_800_000_000), false).status, Status::Ok);
    }

    #[test]
    fn clocks_are_compared() {
        for (theirs, status, found) in [
            (1005, Status::Ok, "as the coordinator's"),
            (1039, Status::Ok, "as the coordinator's"),
            (4610, Status::Warning, "1h behind"),
            (400, Status::Warning, "10m ahead"),
        ] {
            let finding = compare(Duration::from_secs(theirs), at(1000), at(1010));
            assert_eq!((finding.status, finding.found.contains(found)), (status, true), "{}", finding.found);
        }
    }
}

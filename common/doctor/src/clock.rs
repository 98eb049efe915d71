//! Compares the wall clock with the coordinator's. A run does not depend on it, but certificates have a period of validity.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::finding::Finding;

const CHECK: &str = "clock";

/// The difference from another clock above which a clock counts as wrong: clocks synchronised by NTP differ by milliseconds.
const FAR: Duration = Duration::from_secs(30);

const FIX: &str =
    "timedatectl set-ntp true, or set it by hand (date --set): certificates are refused before and after their time";

/// Returns this machine's wall clock.
#[expect(clippy::disallowed_methods, reason = "it is what is checked")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// Compares the clock with the coordinator's, which was `theirs` at some time between `before` and `after`.
pub(crate) fn compare(theirs: Duration, before: SystemTime, after: SystemTime) -> Finding {
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

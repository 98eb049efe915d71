//! Converts any number of seconds to a [`Duration`].

use std::time::Duration;

use crate::limits::MAX_TIME;

/// Converts seconds to a duration: zero if the number is negative or NaN, and at most [`MAX_TIME`]. `Duration` itself panics at such
/// numbers, and `Instant` panics when a duration that is too long is added to it.
pub fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).map_or(MAX_TIME, |duration| duration.min(MAX_TIME))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn any_number_is_a_time() {
        for (seconds, expected) in [
            (0.25, Duration::from_millis(250)),
            (f64::NAN, Duration::ZERO),
            (-1.0, Duration::ZERO),
            (f64::NEG_INFINITY, Duration::ZERO),
            (1e20, MAX_TIME),
            (f64::MAX, MAX_TIME),
            (f64::INFINITY, MAX_TIME),
        ] {
            assert_eq!(duration(seconds), expected, "{seconds}");
            assert!(Instant::now() + duration(seconds) + Duration::from_millis(1) > Instant::now());
        }
    }
}

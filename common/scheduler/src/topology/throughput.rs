//! The bytes and seconds from which a rate follows.

/// The weight that earlier measurements keep after each step. A rate is that of about the last five steps, so that it follows a link that
/// others use, but tolerates a stall.
const KEPT: f64 = 0.8;

/// The factor by which a rate must differ from the known one, in either direction, to show that the link has changed. Smaller differences
/// are noise, which an average evens out.
const CHANGED: f64 = 4.0;

/// The weight that earlier measurements keep if the link is suddenly slower. A stall of a single step is then about half believed, and a
/// link that stays slow is believed to nearly four fifths after three steps.
const DOUBTED: f64 = 0.25;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Throughput {
    pub(super) bytes: f64,
    pub(super) seconds: f64,
}

impl Throughput {
    /// Returns the bytes per second, if any bytes passed.
    pub(super) fn per_s(&self) -> Option<f64> {
        (self.bytes > 0.0 && self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }

    pub(super) fn add(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.seconds += more.seconds;
    }

    /// Adds a new measurement; less than `least_bytes` is no sign of a change.
    pub(super) fn renew(&mut self, now: Self, least_bytes: f64) {
        if let (Some(known), Some(new)) = (self.per_s(), now.per_s())
            && now.bytes >= least_bytes
        {
            // A link that has recovered is measured once, since it is not in use.
            let kept = if new > CHANGED * known {
                0.0
            } else if known > CHANGED * new {
                DOUBTED
            } else {
                1.0
            };
            self.scale(kept);
        }
        self.add(now);
    }

    pub(super) fn scale(&mut self, factor: f64) {
        self.bytes *= factor;
        self.seconds *= factor;
    }

    /// Fades the rate after this many steps, and returns the share of its weight that it keeps. That is at least the weight of
    /// `least_bytes`, so that a small new measurement is no reason to forget it.
    pub(super) fn fade(&mut self, steps: u64, least_bytes: f64) -> f64 {
        let kept = KEPT.powi(steps.min(1000) as i32).max((least_bytes / self.bytes).min(1.0));
        self.scale(kept);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a link that has carried 100 bytes per second for a long time.
    fn usual() -> Throughput {
        let mut link = Throughput::default();
        assert_eq!(link.per_s(), None);
        for _ in 0..50 {
            step(&mut link, 1.0);
        }
        link
    }

    /// Takes a step in which 100 bytes took this many seconds. Returns the rate.
    fn step(link: &mut Throughput, seconds: f64) -> f64 {
        link.fade(1, 0.0);
        link.renew(Throughput { bytes: 100.0, seconds }, 100.0);
        link.per_s().unwrap()
    }

    #[test]
    fn a_slow_link_is_found_in_three_steps_and_one_that_has_recovered_in_one() {
        for seconds in [5.0, 20.0, 100.0, 1e4] {
            let mut link = usual();
            let found: Vec<f64> = (0..3).map(|_| 100.0 / step(&mut link, seconds) / seconds).collect();
            assert!(found[0] > 0.4 && found[2] > 0.79, "{seconds}: {found:?}");
            assert_eq!(step(&mut link, 1.0), 100.0);
        }
        let noisy = step(&mut usual(), 2.0);
        assert!((80.0..90.0).contains(&noisy), "{noisy}");
    }
}

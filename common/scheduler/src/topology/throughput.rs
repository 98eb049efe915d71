//! Bytes and seconds of which a rate follows.

/// What remains of earlier measurements after each step: a rate is that of the last five steps or so, so that it follows a link that
/// others use, and bears a stall.
const KEPT: f64 = 0.8;

/// A rate this many times the known one replaces it: the link has recovered. Less than that is noise, which an average evens out.
const RECOVERED: f64 = 4.0;

/// Bytes that passed a link in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Throughput {
    pub(super) bytes: f64,
    pub(super) seconds: f64,
}

impl Throughput {
    pub(super) fn new(bytes: f64, seconds: f64) -> Self {
        Self { bytes, seconds }
    }

    /// Bytes per second, if some passed.
    pub(super) fn per_s(&self) -> Option<f64> {
        (self.bytes > 0.0 && self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }

    pub(super) fn add(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.seconds += more.seconds;
    }

    /// Takes in what was measured now. A single slow vector outweighs many fast ones, because it took as long as they did.
    pub(super) fn renew(&mut self, now: Self) {
        if let (Some(known), Some(new)) = (self.per_s(), now.per_s())
            && new > RECOVERED * known
        {
            *self = now;
        } else {
            self.add(now);
        }
    }

    /// So many steps have passed. As much weight as `least_bytes` have remains, so that little that is new is no reason to forget a rate.
    pub(super) fn fade(&mut self, steps: u64, least_bytes: f64) {
        let kept = KEPT.powi(steps.min(1000) as i32).max((least_bytes / self.bytes).min(1.0));
        self.bytes *= kept;
        self.seconds *= kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_vector_counts_at_once_and_a_recovered_link_too() {
        let mut link = Throughput::default();
        assert_eq!(link.per_s(), None);
        for _ in 0..50 {
            link.fade(1, 0.0);
            link.renew(Throughput::new(100.0, 1.0));
        }
        link.fade(1, 0.0);
        link.renew(Throughput::new(100.0, 100.0));
        assert!(link.per_s().unwrap() < 5.0, "{link:?}");
        link.fade(1, 0.0);
        link.renew(Throughput::new(100.0, 2.0));
        assert_eq!(link.per_s(), Some(50.0));
        link.fade(1, 0.0);
        link.renew(Throughput::new(100.0, 1.0));
        assert!((link.per_s().unwrap() - 180.0 / 2.6).abs() < 1e-9);
        let rate = link.per_s().unwrap();
        link.fade(1000, 60.0);
        assert!((link.bytes - 60.0).abs() < 1e-9 && (link.per_s().unwrap() - rate).abs() < 1e-9);
        link.fade(1000, 1e9);
        assert!((link.bytes - 60.0).abs() < 1e-9, "it does not grow");
    }
}

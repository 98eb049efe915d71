//! The time that vectors take on the links: the part of an iteration that more workers make longer.

/// How long gradients and parameters travel, in seconds. The default is a network that takes no time.
///
/// In a star, each worker sends one vector per iteration to the coordinator, which steps a chunk as soon as it has that chunk of
/// all of them, and sends it back at once. docs/explanation/links.md derives the formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchange {
    /// Seconds that a gradient takes on the coordinator's link, on the way to it.
    pub up_s: f64,
    /// Seconds that parameters take on the coordinator's link, on the way from it.
    pub down_s: f64,
    /// Seconds that the slower of the two takes on a worker's own link.
    pub own_s: f64,
}

impl Exchange {
    /// Seconds from the end of a worker's last task to the end of the step, if it is the `rank`-th fastest (from 1) of `workers`
    /// that send: the slower ones send first, one after the other, and the fastest computes the longest.
    pub fn window_s(&self, rank: usize, workers: usize) -> f64 {
        (rank as f64 * self.up_s).max(workers as f64 * self.down_s).max(self.own_s)
    }

    /// Whether vectors take no time.
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_part_of_the_way_counts() {
        let exchange = Exchange { up_s: 2.0, down_s: 1.0, own_s: 3.0 };
        assert_eq!(
            [(1, 1), (1, 4), (2, 2), (4, 4)].map(|(rank, workers)| exchange.window_s(rank, workers)),
            [3.0, 4.0, 4.0, 8.0]
        );
        assert!(Exchange::default().is_free() && !exchange.is_free());
    }
}

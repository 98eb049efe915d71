//! The time that vectors take on the links: the part of an iteration that more workers make longer.

use ata_types::MAX_SHARDS;

/// The most that shards may take of a star's time: a star recovers more simply when a worker is lost. In simulations of 2,160 clusters,
/// 1 makes no difference of a thousandth on average, but more of them take over 1 % longer than in a star.
const SHARDS_TO_STAR: f64 = 0.9;

/// The ways on which workers may exchange vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// All vectors pass the coordinator's link.
    #[default]
    Star,
    /// Each of the n workers of a step may sum a shard, 1/n of the values, for all, if that is shorter
    /// ([`Exchange::is_sharded`]).
    Shards,
}

/// How long gradients and parameters travel, in seconds. The default is a network that takes no time.
///
/// In a star, each worker sends one vector per iteration to the coordinator, which steps a chunk as soon as it has that chunk of
/// all of them, and sends it back at once. With shards, each worker gets its shard of the others' vectors, sends the sum to the
/// coordinator, and passes the stepped shard on to the others. docs/explanation/links.md derives the formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchange {
    /// Seconds that a gradient takes on the coordinator's link, on the way to it.
    pub up_s: f64,
    /// Seconds that parameters take on the coordinator's link, on the way from it.
    pub down_s: f64,
    /// Seconds that a gradient takes on a worker's own link.
    pub own_up_s: f64,
    /// Seconds that parameters take on a worker's own link.
    pub own_down_s: f64,
    /// How the workers may exchange them.
    pub topology: Topology,
}

impl Exchange {
    /// Seconds from the end of a worker's last task to the end of the step, if it is the `rank`-th fastest (from 1) of `workers`
    /// that contribute, on whichever way [`is_sharded`](Self::is_sharded) says.
    pub fn window_s(&self, rank: usize, workers: usize) -> f64 {
        if self.is_sharded(workers) { self.shards_s(workers) } else { self.star_s(rank, workers) }
    }

    /// Whether so many workers that contribute to a step exchange their vectors in shards: that is possible, and takes at least a
    /// tenth less than a star does on average over their ranks.
    pub fn is_sharded(&self, workers: usize) -> bool {
        self.topology == Topology::Shards
            && (2..=MAX_SHARDS).contains(&workers)
            && self.shards_s(workers) < SHARDS_TO_STAR * (self.star_s(1, workers) + self.star_s(workers, workers)) / 2.0
    }

    /// Seconds by which the window of so many workers grows if they began an exchange in shards, and one of them leaves it: the others
    /// then fall back to a star.
    pub fn fallback_s(&self, workers: usize) -> f64 {
        if self.is_sharded(workers) { self.star_s(workers, workers) - self.shards_s(workers) } else { 0.0 }
    }

    /// Seconds that a set of parameters takes to a worker that did not contribute to the last step, if no other one does.
    pub fn set_s(&self) -> f64 {
        self.down_s.max(self.own_down_s)
    }

    /// Whether vectors take no time.
    pub fn is_free(&self) -> bool {
        [self.up_s, self.down_s, self.own_up_s, self.own_down_s] == [0.0; 4]
    }

    /// max(j·u, n·d, o): the slower ones send first, one after the other, and the fastest computes the longest.
    fn star_s(&self, rank: usize, workers: usize) -> f64 {
        (rank as f64 * self.up_s).max(workers as f64 * self.down_s).max(self.own_up_s.max(self.own_down_s))
    }

    /// max(o_u + (n − 1)/n·o_d, (n − 1)/n·o_u + o_d, u, d), for each of them: no shard is summed before the last worker has
    /// computed. The coordinator's link carries each value once in each direction.
    fn shards_s(&self, workers: usize) -> f64 {
        let others = (workers - 1) as f64 / workers as f64;
        let sent_s = self.own_up_s + others * self.own_down_s;
        let received_s = others * self.own_up_s + self.own_down_s;
        sent_s.max(received_s).max(self.up_s).max(self.down_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_part_of_the_way_counts() {
        let exchange = Exchange { up_s: 2.0, down_s: 1.0, own_up_s: 3.0, own_down_s: 1.5, ..Exchange::default() };
        let upside_down = Exchange { own_up_s: 1.5, own_down_s: 3.0, ..exchange };
        for exchange in [exchange, upside_down] {
            assert_eq!(
                [(1, 1), (1, 4), (2, 2), (4, 4)].map(|(rank, workers)| exchange.window_s(rank, workers)),
                [3.0, 4.0, 4.0, 8.0]
            );
        }
    }

    #[test]
    fn only_times_of_zero_are_free() {
        let free = Exchange { topology: Topology::Shards, ..Exchange::default() };
        assert!(free.is_free() && Exchange::default().is_free());
        for taken in [
            Exchange { up_s: 1.0, ..free },
            Exchange { down_s: 1.0, ..free },
            Exchange { own_up_s: 1.0, ..free },
            Exchange { own_down_s: 1.0, ..free },
        ] {
            assert!(!taken.is_free(), "{taken:?}");
        }
    }

    /// Links of equal rates at the workers and the coordinator, as in the table of docs/explanation/links.md.
    fn equal(up_s: f64, down_s: f64) -> Exchange {
        Exchange { up_s, down_s, own_up_s: up_s, own_down_s: down_s, topology: Topology::Shards }
    }

    #[test]
    fn shards_spread_the_load_of_the_coordinators_link() {
        for (exchange, workers, expected) in [
            (equal(1.0, 1.0), 2, 1.5),
            (equal(1.0, 1.0), 4, 1.75),
            (equal(1.0, 1.0), 8, 1.875),
            (equal(1.0, 1.0), 16, 1.9375),
            (equal(1.0, 0.5), 4, 1.375),
            (equal(0.5, 1.0), 4, 1.375),
            // The coordinator's link is narrower than a worker's.
            (Exchange { up_s: 5.0, ..equal(1.0, 1.0) }, 4, 5.0),
            (Exchange { down_s: 6.0, ..equal(1.0, 1.0) }, 4, 6.0),
        ] {
            assert!(exchange.is_sharded(workers), "{exchange:?}, {workers}");
            // Of whatever rank.
            assert_eq!(
                [1, workers].map(|rank| exchange.window_s(rank, workers)),
                [expected; 2],
                "{exchange:?}, {workers}"
            );
            let star = Exchange { topology: Topology::Star, ..exchange };
            assert!(!star.is_sharded(workers) && star.window_s(workers, workers) > expected);
        }
    }

    #[test]
    fn a_step_that_falls_back_takes_as_long_as_a_star() {
        let exchange = equal(1.0, 0.5);
        assert_eq!(exchange.fallback_s(4), 4.0 - 1.375);
        assert_eq!([exchange.fallback_s(1), exchange.fallback_s(MAX_SHARDS + 1)], [0.0; 2], "it is one");
        assert_eq!(Exchange { topology: Topology::Star, ..exchange }.fallback_s(4), 0.0);
    }

    #[test]
    fn a_star_is_used_unless_shards_are_shorter_by_a_tenth() {
        let wide_head = Exchange { up_s: 0.1, down_s: 0.1, ..equal(1.0, 1.0) };
        let narrow_down = Exchange { up_s: 0.1, down_s: 0.05, ..equal(1.0, 0.5) };
        let own_only = Exchange { up_s: 0.0, down_s: 0.0, ..equal(1.0, 1.0) };
        for (exchange, workers, is_sharded) in [
            (equal(1.0, 1.0), 0, false),
            (equal(1.0, 1.0), 1, false),
            (equal(1.0, 1.0), 2, true),
            (equal(1.0, 1.0), MAX_SHARDS, true),
            (equal(1.0, 1.0), MAX_SHARDS + 1, false),
            // 1.9375 against 1.6, 1.95 against 2.0, 1.9545 against 2.2.
            (wide_head, 16, false),
            (wide_head, 20, false),
            (wide_head, 22, true),
            // 1.475 against 1.0 for the fastest and 2.0 for the slowest, 1.479 against 1.2 and 2.4.
            (narrow_down, 20, false),
            (narrow_down, 24, true),
            (own_only, 8, false),
            (Exchange { topology: Topology::Shards, ..Exchange::default() }, 8, false),
        ] {
            assert_eq!(exchange.is_sharded(workers), is_sharded, "{exchange:?}, {workers}");
        }
        assert_eq!(wide_head.window_s(1, 20), 2.0, "a star's");
    }
}

use super::*;

const UP_BYTES: f64 = 1e6;

fn worker(slot: usize) -> WorkerId {
    WorkerId::from_slot(slot)
}

fn gradient(slot: usize, bytes: f64, seconds: f64, seen: Seen) -> Observed {
    Observed::Gradient { worker: worker(slot), bytes, seconds, seen }
}

fn together(bytes: f64, seconds: f64, vectors: f64) -> Observed {
    Observed::Together { bytes, seconds, vector_seconds: vectors * seconds }
}

fn step(rates: &mut LinkRates, observed: impl IntoIterator<Item = Observed>) {
    observed.into_iter().for_each(|observed| rates.observe(observed));
    let (topology, chunk) = (Topology::Shards, 0.25);
    rates.observe(Observed::Step { up_bytes: UP_BYTES, down_bytes: UP_BYTES / 2.0, topology, chunk });
}

fn own_s(rates: &LinkRates, slot: usize) -> f64 {
    rates.times().own(worker(slot)).up_s
}

/// Observes three vectors per step, on links of 1e7 bytes per second, where one alone takes 0.1 s.
fn equal_links(rates: &mut LinkRates, steps: usize) {
    for _ in 0..steps {
        step(rates, (0..3).map(|slot| gradient(slot, UP_BYTES, 0.1, Seen::Alone)));
    }
}

#[test]
fn nothing_is_known_before_a_vector_has_arrived() {
    let mut rates = LinkRates::default();
    assert!(rates.times().is_free());
    step(&mut rates, []);
    assert!(rates.times().is_free());
    equal_links(&mut rates, 1);
    let own = OwnTimes { up_s: 0.1, down_s: 0.05 };
    assert_eq!(rates.times().of([worker(0), worker(9)]), [own; 2], "of an unknown one, too");
    assert_eq!((rates.times().up_s, rates.times().topology, rates.times().chunk), (0.0, Topology::Shards, 0.25));
    assert_eq!(rates.up_per_s(worker(2)), Some(1e7));
}

#[test]
fn links_that_differ_little_are_alike() {
    for (seconds, expected) in [(0.12, 0.1), (0.15, 0.15), (0.08, 0.08)] {
        let mut rates = LinkRates::default();
        let alone = [0.1, 0.1, seconds].into_iter().enumerate();
        step(&mut rates, alone.map(|(slot, seconds)| gradient(slot, UP_BYTES, seconds, Seen::Alone)));
        assert!((own_s(&rates, 2) - expected).abs() < 1e-9, "{seconds}: {rates:?}");
    }
}

/// Until a vector has arrived alone, the coordinator's link may be the limit.
#[test]
fn the_narrower_link_is_found() {
    // Three vectors of 1e6 bytes take this time, after one alone that takes 0.1 s.
    for (seconds, up_s, alone) in [(0.3, 0.1, true), (0.1, 0.0, true), (0.15, 0.05, true), (0.3, 0.1, false)] {
        let mut rates = LinkRates::default();
        let mut observed = vec![together(3.0 * UP_BYTES, seconds, 3.0)];
        observed.extend(alone.then(|| gradient(0, UP_BYTES, 0.1, Seen::Alone)));
        observed.extend((0..3).map(|slot| gradient(slot, UP_BYTES, seconds, Seen::Among)));
        step(&mut rates, observed);
        assert!((rates.times().up_s - up_s).abs() < 1e-9, "{seconds}: {}", rates.times().up_s);
        for slot in 0..3 {
            assert!(!alone || (own_s(&rates, slot) - 0.1).abs() < 1e-9, "the coordinator's link was slower");
        }
    }
}

/// The others wait for it, so that all three together are as slow as the slow uplink.
#[test]
fn a_slow_uplink_is_found_at_once_and_is_not_the_coordinators() {
    for (waits, alone) in [(Seen::HeldBack, true), (Seen::HeldBack, false), (Seen::Among, true), (Seen::Among, false)] {
        let mut rates = LinkRates::default();
        equal_links(&mut rates, 10);
        let seconds = UP_BYTES / 2e5;
        let tail = if alone { UP_BYTES / 2.0 } else { 0.0 };
        let mut observed = vec![
            gradient(2, UP_BYTES - tail, seconds, Seen::Among),
            gradient(2, tail, tail / 2e5, Seen::Alone),
            together(3.0 * UP_BYTES, seconds, 3.0),
        ];
        observed.extend((0..2).map(|slot| gradient(slot, UP_BYTES, 0.02, waits)));
        step(&mut rates, observed);
        assert!(own_s(&rates, 2) > 1.0, "{waits:?}, {alone}: {rates:?}");
        assert!(own_s(&rates, 0) < 0.11 && own_s(&rates, 1) < 0.11, "{waits:?}, {alone}: {rates:?}");
        assert_eq!(rates.times().up_s, 0.0, "{waits:?}, {alone}");
    }
}

/// The link was fast among others before.
#[test]
fn a_link_that_becomes_slow_is_not_judged_by_what_it_was() {
    let mut rates = LinkRates::default();
    for _ in 0..10 {
        let mut observed = vec![gradient(0, UP_BYTES, 0.1, Seen::Alone), together(3.0 * UP_BYTES, 0.1, 3.0)];
        observed.extend((0..3).map(|slot| gradient(slot, UP_BYTES, 0.1, Seen::Among)));
        step(&mut rates, observed);
    }
    step(&mut rates, [gradient(2, 1e5, 5.0, Seen::Among), together(1e5, 5.0, 2.0)]);
    assert!(own_s(&rates, 2) < 0.2, "too little to say");
    step(&mut rates, [gradient(2, 4e5, 20.0, Seen::Among), together(4e5, 20.0, 2.0)]);
    assert!(own_s(&rates, 2) > 10.0, "{rates:?}");
}

/// After an exchange in shards that takes too long, the links are measured in a star.
#[test]
fn a_slow_exchange_in_shards_is_followed_by_stars() {
    let mut rates = LinkRates::default();
    let mut stars = |seconds| {
        step(&mut rates, [Observed::Shards { seconds, predicted_s: 0.2 }]);
        let is_star = |rates: &mut LinkRates| {
            let is_star = rates.times().topology == Topology::Star;
            if is_star {
                step(rates, []);
            }
            is_star
        };
        std::iter::repeat_with(|| is_star(&mut rates)).take_while(|is_star| *is_star).count()
    };
    assert_eq!([0.2, 0.5, 0.7, 0.7, 0.7, 0.2, 0.7].map(&mut stars), [0, 0, 1, 2, 4, 0, 1]);
    assert_eq!((0..10).map(|_| stars(9.0)).max(), Some(64));
}

#[test]
fn known_links_are_those_of_the_setting() {
    let own = vec![Some(OwnTimes { up_s: 3.0, down_s: 1.0 }), Some(OwnTimes { up_s: 0.3, down_s: 0.1 })];
    let others = OwnTimes { up_s: 0.3, down_s: 0.1 };
    let times = LinkTimes { up_s: 0.7, down_s: 0.2, own, others, topology: Topology::Shards, chunk: 0.25 };
    let mut rates =
        LinkRates::known(LinkSetting { times: times.clone(), up_bytes: UP_BYTES, down_bytes: UP_BYTES / 2.0 });
    assert_eq!(*rates.times(), times);
    step(&mut rates, []);
    assert_eq!(*rates.times(), times);
    step(&mut rates, [gradient(1, UP_BYTES, 9.0, Seen::Alone)]);
    assert!(own_s(&rates, 1) > 4.0 && rates.times().own(worker(1)).down_s == 0.1);
    rates.forget(worker(1));
    assert_eq!(rates.times().own[1], None);
}

/// A probe is much smaller than a vector, and may pass in a burst.
#[test]
fn the_link_of_large_vectors_is_not_forgotten_while_it_is_probed() {
    const LARGE: f64 = 4e7;
    let mut rates = LinkRates::default();
    let step = |rates: &mut LinkRates, seconds: &[f64]| {
        for (slot, seconds) in (0..).zip(seconds) {
            rates.observe(gradient(slot, LARGE, *seconds, Seen::Alone));
        }
        let (topology, chunk) = (Topology::Shards, 0.125);
        rates.observe(Observed::Step { up_bytes: LARGE, down_bytes: LARGE / 2.0, topology, chunk });
    };
    (0..3).for_each(|_| step(&mut rates, &[0.4, 0.4, 0.4]));
    (0..5).for_each(|_| step(&mut rates, &[0.4, 0.8, 0.4]));
    let (present, mut probes) = ([0, 1, 2].map(worker), 0);
    for _ in 0..100 {
        step(&mut rates, &[]);
        if let Some((probed, bytes)) = rates.next_probe(&present) {
            probes += 1;
            rates.observe(Observed::Probed { worker: probed, bytes: bytes as f64, seconds: bytes as f64 / 5e7 });
        }
        assert!((0.6..0.85).contains(&own_s(&rates, 1)), "after {probes} probes: {}", own_s(&rates, 1));
    }
    assert!(probes > 3);
    rates.observe(Observed::Probed { worker: worker(1), bytes: 262_144.0, seconds: 1e-6 });
    assert!((own_s(&rates, 1) - 0.4).abs() < 0.01, "as fast as others: {}", own_s(&rates, 1));
}

/// The rate is that of the last vectors that arrived together, however long ago.
#[test]
fn a_shared_link_that_is_not_used_is_not_forgotten() {
    let mut rates = LinkRates::default();
    step(&mut rates, [together(3.0 * UP_BYTES, 0.3, 3.0)]);
    let times = rates.times().clone();
    assert!((times.up_s - 0.1).abs() < 1e-9, "{}", times.up_s);
    for steps in [1, 100, 10_000] {
        (0..steps).for_each(|_| step(&mut rates, []));
        assert!((rates.times().up_s - times.up_s).abs() < 1e-9, "{steps}: {}", rates.times().up_s);
    }
}

/// Eight vectors shared the coordinator's link, and then two, so the bounds on the links' rates differ. A probe that shared it as well is one
/// more bound.
#[test]
fn links_that_shared_the_coordinators_are_like_it() {
    let mut rates = LinkRates::default();
    for workers in [8, 8, 2, 2] {
        let shared_s = workers as f64 * 0.1;
        let among = (0..workers).map(|slot| gradient(slot, UP_BYTES, shared_s, Seen::Among));
        let together = together(workers as f64 * UP_BYTES, shared_s, workers as f64);
        step(&mut rates, among.chain([together]));
        assert!((own_s(&rates, 0) - 0.1).abs() < 1e-3, "{workers}: {rates:?}");
    }
    let probed = Observed::Probed { worker: worker(5), bytes: UP_BYTES / 4.0, seconds: 0.5 };
    step(&mut rates, [probed]);
    let times = rates.times();
    assert!((times.up_s - 0.1).abs() < 1e-3, "the coordinator's: {}", times.up_s);
    assert!((0..8).all(|slot| own_s(&rates, slot) == own_s(&rates, 0)), "{:?}", times.own);
    assert!(times.is_sharded(&times.of((0..8).map(worker))));
}

use super::*;

/// An event of a worker's vector.
enum Happens {
    Begins,
    /// The vector begins, and its burst is over at once.
    Opens,
    Receives(u64),
    Waits(bool),
    Ends,
}
use Happens::{Begins, Ends, Opens, Receives, Waits};

/// Returns the observations of these events at `until_s`.
fn metered(until_s: u64, happened: &[(u64, usize, Happens)]) -> Vec<Observed> {
    let began = Instant::now();
    let mut state = MeterState { vectors: (1, 1), ..MeterState::default() };
    let mut names = HashMap::new();
    for (at_s, slot, happens) in happened {
        let (now, worker) = (began + Duration::from_secs(*at_s), WorkerId::from_slot(*slot));
        match happens {
            Begins => drop(names.insert(*slot, state.begin(now, worker))),
            Opens => {
                names.insert(*slot, state.begin(now, worker));
                state.end_burst(now, names[slot]);
            }
            Receives(bytes) => state.receive(now, names[slot], *bytes as f64),
            Waits(is_waiting) => state.wait(now, names[slot], *is_waiting),
            Ends => state.end(now, names[slot]),
        }
    }
    state.stepped(began + Duration::from_secs(until_s), None).unwrap().0
}

fn gradient(slot: usize, bytes: f64, seconds: f64, seen: Seen) -> Observed {
    Observed::Gradient { worker: WorkerId::from_slot(slot), bytes, seconds, seen }
}

#[test]
fn vectors_arrive_alone_and_together() {
    let found = metered(
        9,
        &[
            (0, 0, Opens),
            (2, 0, Receives(20)),
            (2, 1, Opens),
            (6, 0, Receives(30)),
            (6, 1, Receives(10)),
            (6, 0, Ends),
            (7, 1, Receives(5)),
            (7, 1, Ends),
        ],
    );
    let expected = [
        gradient(0, 20.0, 2.0, Seen::Alone),
        gradient(0, 30.0, 4.0, Seen::Among),
        gradient(1, 5.0, 1.0, Seen::Alone),
        gradient(1, 10.0, 4.0, Seen::Among),
        Observed::Together { bytes: 40.0, seconds: 4.0, vector_seconds: 8.0 },
    ];
    assert_eq!(found, expected);
}

/// A piece that has travelled for 5 s, at the end alone, was no faster then.
#[test]
fn a_piece_travels_until_it_has_arrived() {
    let found = metered(
        5,
        &[(0, 0, Opens), (0, 1, Opens), (4, 1, Receives(40)), (4, 1, Ends), (5, 0, Receives(50)), (5, 0, Receives(1))],
    );
    let expected = [
        gradient(0, 11.0, 1.0, Seen::Alone),
        gradient(0, 40.0, 4.0, Seen::Among),
        gradient(1, 40.0, 4.0, Seen::Among),
        Observed::Together { bytes: 80.0, seconds: 4.0, vector_seconds: 8.0 },
    ];
    assert_eq!(found, expected);
}

/// Time in which a vector waits for others says nothing about its link until more of it is read, and time in which all vectors wait counts
/// for none.
#[test]
fn who_is_held_back_is_told_from_who_holds_up() {
    let found = metered(
        10,
        &[
            (0, 0, Opens),
            (0, 1, Opens),
            (1, 0, Receives(8)),
            (1, 0, Waits(true)),
            (7, 1, Receives(8)),
            (7, 1, Waits(true)),
            (9, 1, Waits(false)),
            (9, 0, Waits(false)),
        ],
    );
    let expected = [
        gradient(0, 8.0, 1.0, Seen::Among),
        gradient(1, 8.0, 7.0, Seen::Among),
        Observed::Together { bytes: 16.0, seconds: 8.0, vector_seconds: 16.0 },
    ];
    assert_eq!(found, expected);
}

/// Data that were sent while their vector waited are read from a buffer at once afterwards.
#[test]
fn the_wait_of_a_vector_belongs_to_its_later_bytes() {
    let found = metered(
        6,
        &[
            (0, 0, Opens),
            (0, 1, Opens),
            (4, 0, Receives(8)),
            (4, 0, Waits(true)),
            (5, 1, Receives(40)),
            (5, 1, Ends),
            (5, 0, Waits(false)),
            (5, 0, Receives(40)),
            (6, 0, Receives(2)),
        ],
    );
    let expected = [
        gradient(0, 8.0, 4.0, Seen::Among),
        gradient(0, 42.0, 2.0, Seen::HeldBack),
        gradient(1, 40.0, 5.0, Seen::Among),
        Observed::Together { bytes: 89.0, seconds: 5.0, vector_seconds: 10.0 },
    ];
    assert_eq!(found, expected);
}

/// Sums of times are rounded. What is left of a few bytes in less than the clock's resolution is no rate.
#[test]
fn rounding_is_no_rate() {
    for alone_s in [0.1, 0.2, 0.3, 0.4, 0.5] {
        let (mut state, began) = (MeterState { vectors: (1, 1), alone_s, ..MeterState::default() }, Instant::now());
        let name = state.begin(began, WorkerId::from_slot(0));
        state.end_burst(began, name);
        (1..100).for_each(|ms| state.receive(began + Duration::from_millis(7 * ms), name, 1000.0));
        let observed = state.stepped(began + Duration::from_millis(700), None).unwrap().0;
        assert!(matches!(observed[..], [Observed::Gradient { seen: Seen::Alone, .. }]), "{observed:?}");
    }
}

/// A vector that is incomplete counts with the bytes that have arrived.
#[test]
fn what_still_arrives_counts() {
    let found = metered(50, &[(0, 3, Opens), (10, 3, Receives(1))]);
    assert_eq!(found, [gradient(3, 1.0, 50.0, Seen::Alone)]);
    assert_eq!(MeterState::default().stepped(Instant::now(), None), None, "nothing has arrived");
}

/// The burst counts for the shared link, but not for the sender's own.
#[test]
fn the_first_bytes_of_a_vector_do_not_count() {
    let mut happened = vec![(0, 0, Begins), (3, 0, Receives(1000)), (5, 0, Receives(2))];
    assert_eq!(metered(5, &happened), [gradient(0, 2.0, 2.0, Seen::Alone)]);
    happened.splice(1..1, [(0, 1, Opens)]);
    let together = Observed::Together { bytes: 1002.0, seconds: 5.0, vector_seconds: 10.0 };
    let expected = [gradient(0, 2.0, 2.0, Seen::Among), gradient(1, 0.0, 5.0, Seen::Among), together];
    assert_eq!(metered(5, &happened), expected);
    assert_eq!(metered(5, &[(0, 0, Begins)]), [gradient(0, 0.0, 5.0, Seen::Alone)], "nothing comes for long");
    let waits = [(0, 0, Begins), (0, 0, Waits(true)), (0, 0, Waits(false)), (1, 0, Receives(9)), (3, 0, Receives(4))];
    assert_eq!(metered(3, &waits), [gradient(0, 4.0, 2.0, Seen::Alone)], "it waits for a moment");
    let waits = [(0, 0, Begins), (0, 0, Waits(true)), (1, 0, Waits(false)), (3, 0, Receives(9))];
    assert_eq!(metered(3, &waits), [gradient(0, 9.0, 3.0, Seen::HeldBack)], "it waits for long");
}

#[test]
fn what_arrives_during_an_exchange_in_shards_is_not_alone() {
    let (began, second) = (Instant::now(), Duration::from_secs(1));
    let mut state = MeterState { vectors: (1, 1), shards: Some((1, began, began)), ..MeterState::default() };
    let name = state.begin(began, WorkerId::from_slot(0));
    state.end_burst(began, name);
    state.receive(began + 2 * second, name, 20.0);
    state.shards = None;
    state.receive(began + 3 * second, name, 30.0);
    let observed = state.stepped(began + 3 * second, None).unwrap().0;
    assert_eq!(observed, [gradient(0, 30.0, 1.0, Seen::Alone), gradient(0, 20.0, 2.0, Seen::Among)]);
}

#[test]
fn an_exchange_in_shards_is_measured_as_a_whole() {
    let meter = LinkMeter::default();
    meter.begin(WorkerId::from_slot(0), true).finish();
    let shards: Vec<Transfer> = (0..3).map(|slot| meter.begin(WorkerId::from_slot(slot), false)).collect();
    let still_open = meter.stepped(Some(0.5)).unwrap().0;
    assert!(!still_open.iter().any(|observed| matches!(observed, Observed::Shards { .. })));
    drop(shards);
    (0..3).for_each(|slot| meter.begin(WorkerId::from_slot(slot), false).finish());
    let observed = meter.stepped(Some(0.5)).unwrap().0;
    assert!(matches!(observed[..], [Observed::Shards { seconds, predicted_s: 0.5 }] if seconds < 60.0), "{observed:?}");
}

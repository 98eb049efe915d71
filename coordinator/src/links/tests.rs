use super::*;

/// Returns the observations at `until_s` of these events of workers' vectors. Each is a time in seconds, a worker, and what happens: the
/// vector `begins`, it `opens` (its burst is over at once), bytes arrive, it `waits` for others, it is read (`goes on`), or it `ends`.
fn metered(until_s: u64, happened: &str) -> Vec<Observed> {
    let began = Instant::now();
    let mut state = MeterState { vectors: (1, 1), ..MeterState::default() };
    let mut names = HashMap::new();
    for event in happened.split(", ") {
        let [at_s, worker, happens] = event.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{event}") };
        let now = began + Duration::from_secs(at_s.parse().unwrap());
        match happens {
            "begins" => drop(names.insert(worker, state.begin(now, slot(worker)))),
            "opens" => {
                names.insert(worker, state.begin(now, slot(worker)));
                state.end_burst(now, names[worker]);
            }
            "waits" => state.wait(now, names[worker], true),
            "goes on" => state.wait(now, names[worker], false),
            "ends" => state.end(now, names[worker]),
            bytes => state.receive(now, names[worker], bytes.parse().unwrap()),
        }
    }
    state.stepped(began + Duration::from_secs(until_s), None).unwrap().0
}

fn slot(worker: &str) -> WorkerId {
    WorkerId::from_slot(usize::from(worker.as_bytes()[0] - b'a'))
}

fn gradient(worker: &str, bytes: f64, seconds: f64, seen: Seen) -> Observed {
    Observed::Gradient { worker: slot(worker), bytes, seconds, seen }
}

#[test]
fn vectors_arrive_alone_and_together() {
    let found = metered(9, "0 a opens, 2 a 20, 2 b opens, 6 a 30, 6 b 10, 6 a ends, 7 b 5, 7 b ends");
    let expected = [
        gradient("a", 20.0, 2.0, Seen::Alone),
        gradient("a", 30.0, 4.0, Seen::Among),
        gradient("b", 5.0, 1.0, Seen::Alone),
        gradient("b", 10.0, 4.0, Seen::Among),
        Observed::Together { bytes: 40.0, seconds: 4.0, vector_seconds: 8.0 },
    ];
    assert_eq!(found, expected);
}

/// A piece that has travelled for 5 s, at the end alone, was no faster then.
#[test]
fn a_piece_travels_until_it_has_arrived() {
    let found = metered(5, "0 a opens, 0 b opens, 4 b 40, 4 b ends, 5 a 50, 5 a 1");
    let expected = [
        gradient("a", 11.0, 1.0, Seen::Alone),
        gradient("a", 40.0, 4.0, Seen::Among),
        gradient("b", 40.0, 4.0, Seen::Among),
        Observed::Together { bytes: 80.0, seconds: 4.0, vector_seconds: 8.0 },
    ];
    assert_eq!(found, expected);
}

/// Time in which a vector waits for others says nothing about its link until more of it is read, and time in which all vectors wait counts
/// for none.
#[test]
fn who_is_held_back_is_told_from_who_holds_up() {
    let found = metered(10, "0 a opens, 0 b opens, 1 a 8, 1 a waits, 7 b 8, 7 b waits, 9 b goes on, 9 a goes on");
    let expected = [
        gradient("a", 8.0, 1.0, Seen::Among),
        gradient("b", 8.0, 7.0, Seen::Among),
        Observed::Together { bytes: 16.0, seconds: 8.0, vector_seconds: 16.0 },
    ];
    assert_eq!(found, expected);
}

/// Data that were sent while their vector waited are read from a buffer at once afterwards.
#[test]
fn the_wait_of_a_vector_belongs_to_its_later_bytes() {
    let found = metered(6, "0 a opens, 0 b opens, 4 a 8, 4 a waits, 5 b 40, 5 b ends, 5 a goes on, 5 a 40, 6 a 2");
    let expected = [
        gradient("a", 8.0, 4.0, Seen::Among),
        gradient("a", 42.0, 2.0, Seen::HeldBack),
        gradient("b", 40.0, 5.0, Seen::Among),
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
    let found = metered(50, "0 d opens, 10 d 1");
    assert_eq!(found, [gradient("d", 1.0, 50.0, Seen::Alone)]);
    assert_eq!(MeterState::default().stepped(Instant::now(), None), None, "nothing has arrived");
}

/// The burst counts for the shared link, but not for the sender's own.
#[test]
fn the_first_bytes_of_a_vector_do_not_count() {
    assert_eq!(metered(5, "0 a begins, 3 a 1000, 5 a 2"), [gradient("a", 2.0, 2.0, Seen::Alone)]);
    let together = Observed::Together { bytes: 1002.0, seconds: 5.0, vector_seconds: 10.0 };
    let expected = [gradient("a", 2.0, 2.0, Seen::Among), gradient("b", 0.0, 5.0, Seen::Among), together];
    assert_eq!(metered(5, "0 a begins, 0 b opens, 3 a 1000, 5 a 2"), expected);
    assert_eq!(metered(5, "0 a begins"), [gradient("a", 0.0, 5.0, Seen::Alone)], "nothing comes for long");
    let waits = "0 a begins, 0 a waits, 0 a goes on, 1 a 9, 3 a 4";
    assert_eq!(metered(3, waits), [gradient("a", 4.0, 2.0, Seen::Alone)], "it waits for a moment");
    let waits = "0 a begins, 0 a waits, 1 a goes on, 3 a 9";
    assert_eq!(metered(3, waits), [gradient("a", 9.0, 3.0, Seen::HeldBack)], "it waits for long");
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
    assert_eq!(observed, [gradient("a", 30.0, 1.0, Seen::Alone), gradient("a", 20.0, 2.0, Seen::Among)]);
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

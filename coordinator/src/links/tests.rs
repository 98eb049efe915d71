use super::*;

/// Returns the observations at `until_s`, as [`in_words`], of these events of workers' vectors. Each is a time in seconds, a worker, and what
/// happens: the vector `begins`, it `opens` (its burst is over at once), bytes arrive, it `waits` for others, it is read (`goes on`), or it
/// `ends`.
fn metered(until_s: u64, happened: &str) -> String {
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
    in_words(&state.stepped(began + Duration::from_secs(until_s), None).unwrap().0)
}

fn slot(worker: &str) -> WorkerId {
    WorkerId::from_slot(usize::from(worker.as_bytes()[0] - b'a'))
}

/// Returns what was observed of vectors: bytes and seconds, by whom and how they were seen, and the sum of the vectors' seconds if together.
fn in_words(observed: &[Observed]) -> String {
    let one = |observed: &Observed| match observed {
        Observed::Gradient { worker, bytes, seconds, seen } => {
            format!("{} {bytes} in {seconds} {seen:?}", char::from(b'a' + worker.slot() as u8))
        }
        Observed::Together { bytes, seconds, vector_seconds } => format!("{bytes} in {seconds} of {vector_seconds}"),
        other => format!("{other:?}"),
    };
    observed.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_link_has_the_bytes_and_the_time_that_say_something_about_it() {
    for (until_s, happened, expected) in [
        (
            9,
            "0 a opens, 2 a 20, 2 b opens, 6 a 30, 6 b 10, 6 a ends, 7 b 5, 7 b ends",
            "a 20 in 2 Alone, a 30 in 4 Among, b 5 in 1 Alone, b 10 in 4 Among, 40 in 4 of 8",
        ),
        // A piece that has travelled for 5 s, at the end alone, was no faster then.
        (
            5,
            "0 a opens, 0 b opens, 4 b 40, 4 b ends, 5 a 50, 5 a 1",
            "a 11 in 1 Alone, a 40 in 4 Among, b 40 in 4 Among, 80 in 4 of 8",
        ),
        // Time in which a vector waits for others says nothing about its link until more of it is read, and time in which all vectors wait
        // counts for none.
        (
            10,
            "0 a opens, 0 b opens, 1 a 8, 1 a waits, 7 b 8, 7 b waits, 9 b goes on, 9 a goes on",
            "a 8 in 1 Among, b 8 in 7 Among, 16 in 8 of 16",
        ),
        // Data that were sent while their vector waited are read from a buffer at once afterwards.
        (
            6,
            "0 a opens, 0 b opens, 4 a 8, 4 a waits, 5 b 40, 5 b ends, 5 a goes on, 5 a 40, 6 a 2",
            "a 8 in 4 Among, a 42 in 2 HeldBack, b 40 in 5 Among, 89 in 5 of 10",
        ),
        // A vector that is incomplete counts with the bytes that have arrived.
        (50, "0 d opens, 10 d 1", "d 1 in 50 Alone"),
        // The burst counts for the shared link, but not for the sender's own.
        (5, "0 a begins, 3 a 1000, 5 a 2", "a 2 in 2 Alone"),
        (5, "0 a begins, 0 b opens, 3 a 1000, 5 a 2", "a 2 in 2 Among, b 0 in 5 Among, 1002 in 5 of 10"),
        (5, "0 a begins", "a 0 in 5 Alone"),
        // The vector waits for a moment, and for long.
        (3, "0 a begins, 0 a waits, 0 a goes on, 1 a 9, 3 a 4", "a 4 in 2 Alone"),
        (3, "0 a begins, 0 a waits, 1 a goes on, 3 a 9", "a 9 in 3 HeldBack"),
    ] {
        assert_eq!(metered(until_s, happened), expected, "{happened}");
    }
    assert_eq!(MeterState::default().stepped(Instant::now(), None), None, "nothing has arrived");
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
    assert_eq!(in_words(&observed), "a 30 in 1 Alone, a 20 in 2 Among");
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

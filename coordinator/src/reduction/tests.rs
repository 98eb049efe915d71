use super::*;

#[test]
fn tasks_in_many_ranges_are_several_vectors() {
    let lease = |first: u64| {
        let tasks = TaskRange::single(first);
        Lease { id: LeaseId(first), iteration: Iteration::FIRST, tasks, own: None }
    };
    let sizes = |leases: Vec<_>| in_vectors(leases).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sizes((0..200_000).rev().map(lease).collect()), [200_000], "they are one range");
    assert_eq!(sizes((0..70_000).map(|at| lease(2 * at)).collect()), [MAX_RANGES, 70_000 - MAX_RANGES]);
}

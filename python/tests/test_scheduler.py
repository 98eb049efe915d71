"""The scheduler, with nothing but Python."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import threading
import timeit
from importlib import resources

import pytest

import ata
from ata._core import outer_rate

COSTS = [(0.01, 0.001), (0.01, 0.002), (0.01, 0.004), (0.02, 0.008)]


def step(scheduler: ata.Scheduler, costs: list[tuple[float, float]]) -> tuple[list[int], float]:
    """A step whose shares take o + a*s seconds: the shares, and the longest time."""
    shares = scheduler.next()
    times = [fixed + tasks * per_task for tasks, (fixed, per_task) in zip(shares, costs)]
    for worker, tasks in enumerate(shares):
        if tasks:
            scheduler.observe(worker, tasks, times[worker])
    return shares, max(time for time, tasks in zip(times, shares) if tasks)


def test_shares_become_the_best_ones() -> None:
    scheduler = ata.Scheduler(4, 368)
    best = (368 + sum(fixed / each for fixed, each in COSTS)) / sum(1 / each for _, each in COSTS)
    for _ in range(20):
        shares, longest = step(scheduler, COSTS)
    assert sum(shares) == 368 and longest < 1.02 * best
    swapped = [COSTS[3], COSTS[1], COSTS[2], COSTS[0]]
    for _ in range(10):
        shares, longest = step(scheduler, swapped)
    assert sum(shares) == 368 and longest < 1.1 * best
    assert scheduler.iteration == 30 and scheduler.budget == 368 and scheduler.policy == "ata-auto"


@pytest.mark.parametrize("name", list(ata.policies()))
def test_every_policy_continues_from_its_state(name: str) -> None:
    policy = f"{name}:means=1/2/4/8" if name in ("fta", "cmab-oracle") else name
    first, second = (ata.Scheduler(4, 50, policy, seed=7) for _ in range(2))
    for _ in range(12):
        step(first, COSTS)
    # As a checkpoint does it.
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for _ in range(12):
        assert step(first, COSTS) == step(second, COSTS)
    chooses = name.startswith("cmab") or name == "successive"
    assert sum(first.next()) == 50 or chooses


def test_the_seed_decides_ties() -> None:
    shares = [tuple(ata.Scheduler(4, 6, seed=seed).next()) for seed in range(20)]
    assert set(map(sum, shares)) == {6} and len(set(shares)) > 1
    assert shares == [tuple(ata.Scheduler(4, 6, seed=seed).next()) for seed in range(20)]


def test_workers_join_and_leave() -> None:
    scheduler = ata.Scheduler(2, 12)
    scheduler.leave(0)
    assert scheduler.next() == [0, 12] and scheduler.present == [1]
    assert scheduler.join() == 2 and scheduler.join(0) == 0
    assert scheduler.present == [0, 1, 2] and sum(scheduler.next()) == 12


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda s: ata.Scheduler(0, 1), "0 workers: expected 1 to 1048576"),
        (lambda s: ata.Scheduler(1, 0), "budget 0: expected 1 to 16777216 tasks per iteration"),
        (lambda s: ata.Scheduler(2, 8, "gta"), "policy 'gta' is racing"),
        (lambda s: ata.Scheduler(2, 8, "asgd"), "policy 'asgd' is asynchronous"),
        (lambda s: ata.Scheduler(2, 8, "pull"), "policy 'pull' hands out tasks while an iteration runs"),
        (lambda s: ata.Scheduler(2, 8, "atta"), "unknown policy 'atta' (did you mean 'ata'?): expected one of ata"),
        (lambda s: ata.Scheduler(2, 8, "ema:weight=2"), "weight=2: expected a number above 0 and at most 1"),
        (lambda s: s.observe(2, 1, 1.0), "worker 2 is unknown: there are 2 workers, numbered from 0"),
        (lambda s: s.observe(0, 0, 1.0), "0 tasks: expected 1 to 16777216"),
        (lambda s: s.observe(0, 1, float("nan")), "NaN seconds: expected a finite number of at least 0"),
        (lambda s: s.join(1), "worker 1 is present already"),
        (lambda s: [s.leave(0), s.leave(0)], "worker 0 is not present"),
        (lambda s: [s.leave(0), s.leave(1), s.next()], "no worker is present: one has to join first"),
        (lambda s: s.load_state_dict({}), "no 'ata_scheduler' in it: expected a state_dict()"),
        (lambda s: s.load_state_dict({"ata_scheduler": "{}"}), "missing field `version`"),
    ],
)
def test_mistakes_are_named(act: object, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        act(ata.Scheduler(2, 8))  # type: ignore[operator]
    assert message in str(raised.value)


def test_wrong_types_are_refused() -> None:
    scheduler = ata.Scheduler(2, 8)
    for wrong in [lambda: scheduler.observe("0", 1, 1.0), lambda: ata.Scheduler(2, 8.5), lambda: ata.Scheduler()]:
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(OverflowError):
        scheduler.observe(-1, 1, 1.0)


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    scheduler = ata.Scheduler(numpy.int64(2), numpy.int32(8))
    scheduler.next()
    scheduler.observe(numpy.int64(0), numpy.uint16(4), numpy.float32(0.5))
    scheduler.observe(numpy.int64(1), numpy.int8(4), numpy.float64(1.5))
    assert scheduler.next() == [6, 2]


def test_a_call_takes_microseconds() -> None:
    scheduler = ata.Scheduler(8, 512)
    costs = [COSTS[worker % 4] for worker in range(8)]
    for _ in range(50):
        step(scheduler, costs)
    # Some 10 us on an idle machine; the best of many, because this one may be busy.
    assert min(timeit.repeat(lambda: step(scheduler, costs), number=1, repeat=200)) < 1e-3


def test_threads_take_turns() -> None:
    scheduler = ata.Scheduler(4, 64)
    threads = [threading.Thread(target=lambda: [step(scheduler, COSTS) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scheduler.iteration == 800 and sum(scheduler.next()) == 64


def test_importing_it_does_not_import_torch() -> None:
    code = "import ata, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_without_torch_there_is_an_explanation() -> None:
    code = "import sys; sys.modules['torch'] = None; import ata.torch"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "ata.torch needs PyTorch: pip install torch" in ended.stderr


def test_the_stub_names_what_there_is() -> None:
    """Names and parameters in `_core.pyi` are those of the extension, and everything has a docstring."""
    package = resources.files("ata")
    assert package.joinpath("py.typed").is_file()
    stub: dict[str, object] = {}
    exec(compile(package.joinpath("_core.pyi").read_text(), "_core.pyi", "exec"), stub)
    public = [name for name in dir(ata.Scheduler) if not name.startswith("_")]
    of_stub = vars(stub["Scheduler"])  # type: ignore[arg-type]
    assert sorted(name for name in of_stub if not name.startswith("_")) == sorted(public)
    for name in public:
        real = getattr(ata.Scheduler, name)
        assert real.__doc__, name
        if callable(real):
            found = list(inspect.signature(real).parameters.values())
            expected = list(inspect.signature(of_stub[name]).parameters.values())
            assert [(each.name, each.kind, each.default) for each in found] == [
                (each.name, each.kind, each.default) for each in expected
            ]
    assert ata.Scheduler.__doc__ and ata.policies.__doc__


def test_growth_is_limited_if_it_is_asked_for() -> None:
    def growth(**options: bool) -> float:
        """Of the share of a worker that was fast twice."""
        scheduler = ata.Scheduler(2, 120, **options)
        for seconds in [0.9] * 9 + [0.01] * 2:
            before = scheduler.next()
            scheduler.observe(0, before[0], 0.01 * before[0])
            scheduler.observe(1, before[1], seconds * before[1] / 10)
        return scheduler.next()[1] / before[1]

    assert growth() > 2 > 1.5 > growth(limit_growth=True)


def test_rounds_are_as_long_as_the_link_asks() -> None:
    scheduler = ata.Scheduler(2, 16, most=960)
    assert sum(scheduler.next()) == scheduler.budget == 16
    for worker in range(2):
        scheduler.observe(worker, 8, 0.16)
    scheduler.observe_exchange(0.02, 0.9)
    # 100 steps a second: at most eight times as many, while 90 are computed in 0.9 s, and a tenth is left.
    assert sum(scheduler.next()) == scheduler.budget == 100
    with pytest.raises(ValueError, match="no rounds"):
        ata.Scheduler(2, 16).observe_exchange(1.0, 0.0)
    with pytest.raises(ValueError, match="expected 16"):
        ata.Scheduler(2, 16, most=15)


def test_the_outer_rate_follows_the_shares() -> None:
    assert [outer_rate([60]), outer_rate([5, 5, 5]), outer_rate([0, 6, 6])] == [1.0, 1.5, 4 / 3]

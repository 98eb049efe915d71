"""Tests of how many steps a round of ata.torch.Local has."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from ata.torch.rounds import RoundLength, outer_rate


def lengths(length: RoundLength, rounds: list[tuple[float, float, float]]) -> list[int]:
    """The numbers of steps after rounds with this R, p and e."""
    found = []
    for measured in rounds:
        length.measure(*measured)
        found.append(length.next())
    return found


def test_waits_and_exchanges_are_hidden() -> None:
    # 180 steps take 1.8 s of 2 s.
    assert lengths(RoundLength("auto", 3), [(100.0, 0.2, 0.0)] * 3) == [180] * 3
    # While 2 s pass that nobody waits for, ranks take 200 steps, and 222 with the tenth that is left.
    assert lengths(RoundLength("auto", 3), [(100.0, 0.01, 2.0)] * 3) == [192, 222, 222]
    assert lengths(RoundLength("auto:100", 3), [(100.0, 0.2, 2.0)] * 2) == [100] * 2
    assert lengths(RoundLength("auto", 3), [(100.0, 9.0, 0.0)] * 3) == [192, 960, 960]


def test_single_rounds_change_nothing() -> None:
    length = RoundLength("auto", 3)
    lengths(length, [(100.0, 0.2, 0.0)] * 5)
    # A rank was away, and in another round nobody was measured.
    assert lengths(length, [(100.0, 60.0, 0.0), (0.0, 1.0, 1.0), (100.0, 0.2, 60.0)]) == [180] * 3
    # Then the link is free: three of five rounds say so, and the least number follows by halves.
    assert lengths(length, [(100.0, 0.0, 0.0)] * 6)[-3:] == [45, 24, 24]


def test_a_number_stays() -> None:
    length = RoundLength(240, 3)
    assert lengths(length, [(100.0, 9.0, 9.0)] * 3) == [240] * 3
    length.go_on_with(77)
    assert length.steps == 240
    chosen = RoundLength("auto:90", 3)
    chosen.go_on_with(77)
    assert chosen.steps == 77
    chosen.go_on_with(777)
    assert chosen.steps == 90


@pytest.mark.parametrize("steps", ["many", "auto:", "auto:-4", "autos", "automatic:9", "auto:9:9", 2, "auto:2", 2.5])
def test_what_is_no_number_of_steps_is_refused(steps: int | str) -> None:
    with pytest.raises(ValueError, match=r"steps=.*: expected"):
        RoundLength(steps, 3)


def test_the_outer_rate_follows_the_shares() -> None:
    assert [outer_rate([60.0]), outer_rate([5.0, 5.0, 5.0]), outer_rate([0.0, 6.0, 6.0])] == [1.0, 1.5, 4 / 3]
    assert outer_rate([8.0, 4.0, 2.0, 1.0]) == pytest.approx(2 * 225 / (85 + 225))

"""How fast a rank's share may grow."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from ata.torch.growth import Growth  # noqa: E402

LEARNED = [195, 105, 50, 18]


def steps(meant: list[int], first: list[int], count: int) -> list[list[int]]:
    """The shares of some steps for which the same was meant."""
    growth = Growth(first)
    found = [growth.limit(meant) for _ in range(count)]
    assert all(sum(shares) == sum(meant) for shares in found)
    return found


def test_small_changes_are_made_at_once() -> None:
    meant = [190, 106, 50, 22]
    assert steps(meant, LEARNED, 1) == [meant]


def test_a_rank_that_looks_fast_gets_a_little_more_and_soon_all() -> None:
    meant = [150, 80, 38, 100]
    assert [shares[3] for shares in steps(meant, LEARNED, 4)] == [23, 47, 100, 100]


def test_a_swap_of_speeds_is_followed_within_a_few_steps() -> None:
    meant = [18, 105, 50, 195]
    found = steps(meant, LEARNED, 6)
    assert found[-1] == meant
    assert [shares[0] for shares in found] == sorted((shares[0] for shares in found), reverse=True)


def test_a_rank_without_samples_gets_some() -> None:
    assert [shares[1] for shares in steps([4, 4], [8, 0], 4)] == [1, 3, 4, 4]


def test_what_nobody_may_have_yet_is_computed_all_the_same() -> None:
    assert steps([0, 100], [100, 0], 1) == [[99, 1]]
    assert steps([0, 0, 100], [0, 0, 100], 1) == [[0, 0, 100]]
    assert sum(steps([50, 50], [1, 1], 1)[0]) == 100

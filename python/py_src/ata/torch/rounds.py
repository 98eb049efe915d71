"""Rounds of local steps: how many steps, and how far parameters move after them."""

from __future__ import annotations

import statistics
from collections import deque

# The part of the time in which ranks are to compute, and the most steps of a round, by default: as for `ata coordinator --local-steps auto`.
UTILIZATION = 0.9
MOST = 960

# The steps per rank of the first round, which is also the shortest.
LEAST = 8

# The largest factors by which the number grows and shrinks at once, and the rounds whose medians count. While an exchange takes far longer than
# a round, each round less is worth much.
MOST_GROWTH, MOST_SHRINKAGE = 8, 2
USUAL = 5


class RoundLength:
    """The number of steps of the next round, of all ranks together.

    A round of A steps takes A/R + p seconds, where ranks compute R steps a second, and wait for p seconds. An exchange of e seconds goes on
    meanwhile, if ranks do not wait for it. So ranks compute for a part u of the time with A = max(R·p·u/(1 - u), R·e/u).

    Attributes:
        steps: The number.
    """

    def __init__(self, steps: int | str, ranks: int) -> None:
        name, _, most = str(steps).partition(":")
        chooses = name == "auto" and (most.isdecimal() or str(steps) == "auto")
        if not chooses and not isinstance(steps, int):
            raise ValueError(f"steps={steps!r}: expected a number, 'auto', or 'auto:240' for another largest number")
        self._most = int(most or MOST) if chooses else int(steps)
        if self._most < ranks:
            raise ValueError(f"steps={steps}: expected at least one for each of {ranks} ranks")
        self._least = min(LEAST * ranks, self._most) if chooses else self._most
        self.steps = self._least
        self._measured: deque[tuple[float, float, float]] = deque(maxlen=USUAL)

    def measure(self, steps_per_s: float, waited_s: float, exchange_s: float) -> None:
        """Records the R, p and e of a round."""
        if steps_per_s > 0.0:
            self._measured.append((steps_per_s, waited_s, exchange_s))

    def next(self) -> int:
        """Chooses the number of the next round, which is at most eight times the last one's, and at least half."""
        if self._measured:
            steps_per_s, waited_s, exchange_s = (statistics.median(each) for each in zip(*self._measured, strict=True))
            wanted = steps_per_s * max(waited_s * UTILIZATION / (1.0 - UTILIZATION), exchange_s / UTILIZATION)
            wanted = min(max(wanted, self.steps / MOST_SHRINKAGE), self.steps * MOST_GROWTH)
            self.go_on_with(round(wanted))
        return self.steps

    def go_on_with(self, steps: int) -> None:
        """Makes this the number, as far as it may be."""
        self.steps = min(max(steps, self._least), self._most)


def outer_rate(shares: list[float]) -> float:
    """2e/(1 + e), where e is the number of equal ranks whose mean has as little noise as that of ranks with these shares.

    `outer_rate` of ata's Rust crates says why.
    """
    equal = sum(shares) ** 2 / sum(share * share for share in shares)
    return 2.0 * equal / (1.0 + equal)

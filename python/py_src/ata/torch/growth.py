"""How fast a rank's share may grow.

A step waits for all of every share, so a rank that only looks fast holds up all others. So it is given a little more at first, and
much more only if it still looks fast then.
"""

from __future__ import annotations

from collections.abc import Sequence

FIRST = 1.25
"""A rank gets at most so many times what it had in the step before. If that was less than was meant for it, twice as much, and so on."""


class Growth:
    """Limits the shares of ranks by those that they had.

    Args:
        shares: The first ones.
    """

    def __init__(self, shares: Sequence[int]) -> None:
        self._shares = list(shares)
        # For how many steps in a row each rank had less than was meant for it.
        self._limited = [0] * len(shares)

    def limit(self, shares: Sequence[int]) -> list[int]:
        """Shares in place of these, with the same sum: what is too much for a rank goes to the others in proportion to theirs."""
        factors = [max(FIRST, 2.0**steps) for steps in self._limited]
        most = [int(before * factor) + 1 for before, factor in zip(self._shares, factors, strict=True)]
        limited = [min(pair) for pair in zip(shares, most, strict=True)]
        self._limited = [steps + 1 if is_less else 0 for steps, is_less in zip(self._limited, map(int.__lt__, limited, shares))]
        for _ in range(sum(shares) - sum(limited)):
            open_ranks = [rank for rank, samples in enumerate(limited) if samples < most[rank]] or range(len(limited))
            limited[min(open_ranks, key=lambda rank: (limited[rank] + 1) / max(shares[rank], 1))] += 1
        self._shares = limited
        return limited

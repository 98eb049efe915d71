"""The regression of the examples with an optimizer of its own, which fails in the step that the program's first argument names, or in none."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import ata

sys.path.append(str(Path(__file__).parent.parent / "examples"))

from numpy_problem import Regression  # noqa: E402

RATE = 0.02


class Momentum:
    """Gradient descent with momentum."""

    def __init__(self, fails_at: int) -> None:
        self.fails_at = fails_at
        self.parameters, self.gradient, self.velocity = (np.zeros(9, np.float32) for _ in range(3))

    def step(self, iteration: int, factor: float, used: list[bool] | None) -> float:
        assert used is None
        if iteration == self.fails_at:
            raise ValueError("out of luck")
        self.velocity = np.float32(0.5) * self.velocity + self.gradient
        self.parameters -= np.float32(RATE * factor) * self.velocity
        return RATE * factor

    def state(self) -> bytes:
        return self.velocity.tobytes()

    def restore(self, state: bytes) -> None:
        self.velocity = np.frombuffer(state, np.float32)


class OwnRegression(Regression):
    """The regression, and the function that makes its optimizer."""

    def __init__(self, fails_at: int) -> None:
        super().__init__()
        self.optimizer = lambda: Momentum(fails_at)


if __name__ == "__main__":
    ata.main(OwnRegression(int(sys.argv.pop(1))), budget=16, task_batch=32, iterations=20, wire="f32-exact")

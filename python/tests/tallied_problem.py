"""A problem whose tasks have weights, and gradients that some of them lack."""

from __future__ import annotations

import numpy as np

import ata

POINTS = np.random.default_rng(6).normal(1, 1, (300, 4)).astype(np.float32)
# Some tasks of four samples weigh nothing.
WEIGHTS = np.where(np.arange(300) % 3 == 0, 0, np.arange(300) % 7).astype(np.float32)


class Tallied(ata.Problem):
    """The weighted mean distance of a center to samples; every third iteration, also that of another one."""

    name = "tallied"
    weighs = True
    finds_unused = True

    def start(self, seed):
        return {"unused": np.ones(3, np.float32), "center": np.ones(4, np.float32), "rare": np.ones((2, 2), np.float32)}

    def samples(self, split, path):
        return len(POINTS)

    def loss_and_gradient(self, parameters, samples, key):
        _, iteration, task = key
        weights = WEIGHTS[samples]
        shares = (weights / max(weights.sum(), 1)).astype(np.float32)
        away = shares @ (parameters["center"] - POINTS[samples])
        has_rare = iteration % 3 == 0 and task % 2 == 1
        rare = (shares @ (parameters["rare"].ravel() - POINTS[samples])).reshape(2, 2) if has_rare else None
        return np.sum(away**2), {"unused": None, "center": away, "rare": rare}, weights.sum()

    def measure(self, parameters, samples):
        return np.mean((parameters["center"] - POINTS[samples]) ** 2)


if __name__ == "__main__":
    ata.main(Tallied(), budget=6, task_batch=4, optimizer="adamw", lr=0.05, weight_decay=0.1)

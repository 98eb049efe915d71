"""A problem whose samples are normalised by running statistics, which no optimizer trains."""

from __future__ import annotations

import numpy as np

import ata

POINTS = np.random.default_rng(5).normal(3, 2, (400, 6)).astype(np.float32)


class Normalised(ata.Problem):
    """The mean distance of a center to the normalised samples."""

    name = "normalised"
    averaged = ("mean", "var")

    def start(self, seed):
        return {"mean": np.zeros(6, np.float32), "center": np.ones((2, 3), np.float32), "var": np.ones(6, np.float32)}

    def samples(self, split, path):
        return len(POINTS)

    def loss_and_gradient(self, parameters, samples, key):
        mean, var = POINTS[samples].mean(0), POINTS[samples].var(0)
        away = parameters["center"] - ((POINTS[samples] - mean) / np.sqrt(var)).mean(0).reshape(2, 3)
        left = {"mean": moved(parameters["mean"], mean), "var": moved(parameters["var"], var)}
        return np.sum(away**2), {"center": 2 * away, **left}

    def measure(self, parameters, samples):
        normalised = (POINTS[samples] - parameters["mean"]) / np.sqrt(parameters["var"])
        return np.mean((normalised - parameters["center"].ravel()) ** 2)


def moved(running, found):
    """The next running statistic."""
    return (0.9 * running + 0.1 * found).astype(np.float32)


if __name__ == "__main__":
    ata.main(Normalised(), budget=8, task_batch=5, optimizer="adamw", lr=0.05)

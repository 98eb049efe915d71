"""A problem whose vectors have several chunks, blocks of very different values, and two tensors."""

from __future__ import annotations

import numpy as np

import ata

SAMPLES = {"train": 300, "test": 150}
CURVATURE = np.geomspace(1e-4, 1, 40_300).astype(np.float32)


class Wide(ata.Problem):
    """The mean distance to the samples, each of which is a point."""

    name = "wide"

    def start(self, seed):
        return {"a": np.zeros(40_000, np.float32), "b": np.zeros((3, 100), np.float32)}

    def samples(self, split, path):
        return SAMPLES[split]

    def loss_and_gradient(self, parameters, samples, key):
        loss, gradient = loss_and_gradient(flat(parameters), samples)
        return loss, {"a": gradient[:40_000], "b": gradient[40_000:].reshape(3, 100)}

    def measure(self, parameters, samples):
        return loss_and_gradient(flat(parameters), samples)[0]


def flat(parameters):
    return np.concatenate([parameters["a"], parameters["b"].ravel()])


def loss_and_gradient(vector, samples):
    """The mean loss over the samples, and its gradient, both for the flat vector."""
    positions = np.arange(len(CURVATURE))
    points = [(positions * (int(sample) + 1) % 97 / 97).astype(np.float32) for sample in samples]
    away = vector - np.mean(points, axis=0, dtype=np.float32)
    return float(np.sum(CURVATURE * away**2, dtype=np.float64)), 2 * CURVATURE * away


if __name__ == "__main__":
    ata.main(Wide(), budget=8, task_batch=4, optimizer="sgd", lr=0.05)

"""Linear regression in numpy on ata's own cluster. Run: python examples/numpy_problem.py up --workers 2 --iterations 50"""

import numpy as np

import ata


class Regression(ata.Problem):
    """y = x·w + b, from noisy samples."""

    name = "regression"

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        x = random.normal(size=(4096, 8)).astype(np.float32)
        y = x @ np.arange(8, dtype=np.float32) + 3 + 0.1 * random.normal(size=4096).astype(np.float32)
        self.data = {"train": (x[:3072], y[:3072]), "test": (x[3072:], y[3072:])}

    def start(self, seed):
        return {"w": np.zeros(8, np.float32), "b": np.zeros(1, np.float32)}

    def samples(self, split, path):
        return len(self.data[split][1])

    def loss_and_gradient(self, parameters, samples, key):
        x, _ = self.data["train"]
        error = self.error("train", parameters, samples)
        return np.mean(error**2), {"w": 2 * x[samples].T @ error / len(error), "b": [2 * error.mean()]}

    def measure(self, parameters, samples):
        return np.mean(self.error("test", parameters, samples) ** 2)

    def error(self, split, parameters, samples):
        x, y = self.data[split]
        return x[samples] @ parameters["w"] + parameters["b"] - y[samples]


if __name__ == "__main__":
    ata.main(Regression(), budget=16, task_batch=32, optimizer="sgd", lr=0.02)

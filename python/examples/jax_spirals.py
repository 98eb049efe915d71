"""A JAX model on ata's own cluster. Run: python examples/jax_spirals.py up --workers 2 --iterations 100"""

import jax
import numpy as np
from jax import numpy as jnp

import ata
import ata.jax


def spirals(count, seed):
    """Points of three arms, and the arm that each belongs to."""
    random = np.random.default_rng(seed)
    arm, radius = random.integers(3, size=count), random.random(count)
    angle = 4 * radius + arm * 2 * np.pi / 3 + 0.2 * random.normal(size=count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32), arm.astype(np.int32)


def forward(parameters, inputs, key):
    """Scores of the arms, with dropout in training."""
    hidden = jnp.maximum(inputs @ parameters["in"]["w"] + parameters["in"]["b"], 0)
    if key is not None:
        hidden = jnp.where(jax.random.bernoulli(key, 0.9, hidden.shape), hidden / 0.9, 0)
    return hidden @ parameters["out"]["w"] + parameters["out"]["b"]


def loss(scores, arms):
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), arms[:, None], 1).mean()


if __name__ == "__main__":
    w_in, w_out = (jax.random.normal(jax.random.key(seed), shape) for seed, shape in [(0, (2, 128)), (1, (128, 3))])
    start = {"in": {"w": w_in, "b": jnp.zeros(128)}, "out": {"w": w_out / 8, "b": jnp.zeros(3)}}
    classes = ["first", "second", "third"]
    problem = ata.jax.Problem(start, forward, loss, spirals(8192, seed=1), evaluate=spirals(1024, seed=2), classes=classes)
    ata.main(problem, budget=16, task_batch=16, optimizer="adamw", lr=1e-2)

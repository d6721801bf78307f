# SPDX-License-Identifier: Apache-2.0
"""Train a small network with JAX and Flax: `python examples/train_jax.py DATASET FOLDER`.

If it is killed, start it again: it continues with the exact next batch. With several processes, call
`jax.distributed.initialize()` first; each process then loads its share of every global batch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import optax
import orbax.checkpoint as ocp
from flax import nnx

import headrace
from headrace.transforms import HorizontalFlip, Normalize, RandomResizedCrop, Transform

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRANSFORM: list[Transform] = [RandomResizedCrop(64), HorizontalFlip(), Normalize(MEAN, STD)]


class Classifier(nnx.Module):
    """A convolution and a linear layer. JAX images are [batch, height, width, channels]: the loader's layout "HWC"."""

    def __init__(self, classes: int, rngs: nnx.Rngs) -> None:
        self.convolution = nnx.Conv(3, 16, (3, 3), strides=2, rngs=rngs)
        self.linear = nnx.Linear(16, classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        return self.linear(nnx.relu(self.convolution(images)).mean(axis=(1, 2)))


@nnx.jit
def step(model: Classifier, optimizer: nnx.Optimizer[Any], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Train on one batch and return its loss."""

    def loss_of(model: Classifier) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def main(path: str, folder: str, *, epochs: int = 2, batch_size: int = 32, save_every: int = 50) -> list[float]:
    """Train on a dataset, continue from the checkpoint in a folder if there is one, and return the losses."""
    settings: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "seed": 1, "drop_last": True}
    losses: list[float] = []
    with (
        headrace.Loader(path, **settings, transform=TRANSFORM, layout="HWC", output="jax") as loader,
        ocp.CheckpointManager(Path(folder).absolute()) as manager,
    ):
        model = Classifier(len(loader.dataset.classes or []), nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.sgd(0.05, momentum=0.9), wrt=nnx.Param)
        weights, steps = nnx.state((model, optimizer)), manager.latest_step() or 0
        if steps:
            wanted = ocp.args.Composite(weights=ocp.args.StandardRestore(weights), loader=ocp.args.JsonRestore())
            found = manager.restore(steps, args=wanted)
            nnx.update((model, optimizer), found["weights"])
            loader.load_state_dict(found["loader"])
        while loader.epoch < epochs:
            for batch in loader:
                losses.append(float(step(model, optimizer, batch["image"], batch["label"])))
                steps += 1
                if steps % save_every == 0:
                    saved = ocp.args.StandardSave(nnx.state((model, optimizer)))
                    both = ocp.args.Composite(weights=saved, loader=ocp.args.JsonSave(loader.state_dict()))
                    manager.save(steps, args=both)
    return losses


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2]))

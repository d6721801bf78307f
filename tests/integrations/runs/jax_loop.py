# SPDX-License-Identifier: Apache-2.0
"""JAX with Flax and Optax in one or several processes; Orbax saves the state of the loader as JSON."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from tests.integrations.runs.job import CLASSES, SIZE, Job, main


@nnx.jit
def step(model, optimizer, images, labels):
    def loss(model):
        logits = model(images.reshape(len(images), -1))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    optimizer.update(model, nnx.grad(loss)(model))


def train(job: Job) -> None:
    if "JAX_PROCESSES" in os.environ:
        jax.distributed.initialize(
            os.environ["JAX_COORDINATOR"], int(os.environ["JAX_PROCESSES"]), int(os.environ["RANK"])
        )
    mesh = jax.make_mesh((jax.device_count(),), ("batch",))
    shards = jax.NamedSharding(mesh, jax.P("batch"))
    loader = job.loader(output="numpy")
    model = nnx.Linear(SIZE, CLASSES, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.01), wrt=nnx.Param)
    weights = jax.device_put(nnx.state(model), jax.NamedSharding(mesh, jax.P()))
    nnx.update(model, weights)
    with ocp.CheckpointManager(job.path("checkpoints")) as manager:
        if job.resumes:
            restored = manager.restore(
                manager.latest_step(),
                args=ocp.args.Composite(model=ocp.args.StandardRestore(weights), loader=ocp.args.JsonRestore()),
            )
            nnx.update(model, restored["model"])
            loader.load_state_dict(restored["loader"])
        log, steps = job.log(loader.rank), manager.latest_step() or 0
        while loader.epoch < job.epochs:
            for batch in loader:
                log.received(batch["image"], batch["label"], batch.get("_repeat"))
                images, labels = (
                    jax.make_array_from_process_local_data(shards, np.asarray(batch[name]))
                    for name in ("image", "label")
                )
                step(model, optimizer, images, labels)
                steps += 1
                if steps % job.save_every == 0:
                    saved = ocp.args.StandardSave(nnx.state(model))
                    manager.save(
                        steps, args=ocp.args.Composite(model=saved, loader=ocp.args.JsonSave(loader.state_dict()))
                    )
                    manager.wait_until_finished()
                log.after_step()
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(nnx.state(model)))


if __name__ == "__main__":
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    main(train)

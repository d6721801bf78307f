# SPDX-License-Identifier: Apache-2.0
"""Each trainer, with its real library: what it trains on before a kill and after resuming is the uninterrupted run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.integrations.runs.job import Job, entry, read

ROOT = Path(__file__).parents[2]
LIBRARIES = {
    "accelerate_loop": ("accelerate",),
    "examples": ("lightning", "jax", "flax", "optax", "orbax"),
    "jax_loop": ("jax", "flax", "optax", "orbax"),
    "lightning_epochs": ("lightning",),
    "lightning_fabric": ("lightning",),
    "lightning_trainer": ("lightning",),
    "timm_script": ("timm",),
    "transformers_trainer": ("transformers", "accelerate"),
    "torchrun": (),
}
CHECK_THEMSELVES = ["examples", "lightning_epochs"]
ONE_RANK = [name for name in LIBRARIES if name not in {*CHECK_THEMSELVES, "torchrun"}]
PYTORCH = [name for name in LIBRARIES if name not in {*CHECK_THEMSELVES, "jax_loop"}]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def missing(trainer):
    return [library for library in ("torch", *LIBRARIES[trainer]) if find_spec(library) is None]


def need(trainer):
    """Skip the test if a library is missing."""
    if missing(trainer):
        pytest.skip(f"{', '.join(missing(trainer))} not installed: pip install --group trainers")


def script(trainer):
    return str(Path(__file__).parent / "runs" / f"{trainer}.py")


def run(*command, succeeds=True, **environment):
    """Run a program of Python and return what it printed."""
    result = subprocess.run(
        [sys.executable, *command],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (result.returncode == 0) == succeeds, result.stdout + result.stderr
    return result.stdout + result.stderr


def start(*command, log, **environment):
    """Start a program of Python that writes to a log."""
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, *command], env={**ENVIRONMENT, **environment}, stdout=file, stderr=subprocess.STDOUT
        )


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def torchrun(trainer, job, ranks, *, succeeds=True):
    nodes = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
    run("-m", "torch.distributed.run", *nodes, "--nproc-per-node", str(ranks), script(trainer), job.to_json(),
        succeeds=succeeds, ACCELERATE_USE_CPU="1")  # fmt: skip


def expected(job, rank=0, ranks=1, start=None):
    """Return what a rank should receive, from a loader of the same options; from a state on, if one is given."""
    with job.loader(rank=rank, world_size=ranks) as loader:
        if start is not None:
            loader.load_state_dict(start)
        lines = []
        while loader.epoch < job.epochs:
            lines += [entry(batch["image"], batch["label"], batch.get("_repeat")) for batch in loader]
    return lines


def state_after(job, batches, ranks):
    """Return the state after so many batches of the run."""
    with job.loader(rank=0, world_size=ranks) as loader:
        loader.set_epoch(batches // len(loader))
        loader.skip_batches(batches % len(loader))
        return loader.state_dict()


def assert_each_sample_once(lines, job):
    """All ranks together received each sample once in each epoch, apart from repeats, which come last in a batch."""
    received = [label for line in lines for label in line["labels"][: len(line["labels"]) - line["repeats"]]]
    assert sorted(received) == sorted(list(range(job.samples)) * job.epochs)


@pytest.fixture(scope="module")
def short_runs(dataset, tmp_path_factory):
    """Two epochs of five batches with each trainer, ended after the fourth and continued from the third."""
    folder = tmp_path_factory.mktemp("short")
    job = Job(dataset, str(folder), kill_after=4, kill_process=False, samples=20, epochs=2, save_every=3)
    names = [name for name in [*ONE_RANK, *CHECK_THEMSELVES] if not missing(name)]
    run(script("one_process"), job.to_json(), *names)
    return job


def finished(trainer, short_runs):
    """Return the job of one trainer, if it raised nothing."""
    need(trainer)
    job = replace(short_runs, folder=short_runs.path(trainer))
    error = Path(job.path("error"))
    assert not error.exists(), error.read_text()
    return job


@pytest.mark.parametrize("trainer", ONE_RANK)
def test_one_rank(trainer, short_runs):
    """What each trainer received before the end and after it is what an uninterrupted loader returns."""
    job = finished(trainer, short_runs)
    first, rest, all_of_it = read(job, 0, 0), read(job, 1, 0), expected(job)
    assert (len(first), len(rest)) == (4, 7)
    assert first == all_of_it[:4]
    assert first[:3] + rest == all_of_it
    assert_each_sample_once(first[:3] + rest, job)


@pytest.mark.parametrize("name", CHECK_THEMSELVES)
def test_a_run_that_checks_itself(name, short_runs):
    finished(name, short_runs)


def test_examples_are_short():
    for example in ("train_jax.py", "train_lightning.py"):
        assert len((ROOT / "examples" / example).read_text(encoding="utf-8").splitlines()) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("trainer", PYTORCH)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_kill_in_mid_epoch(trainer, ranks, dataset, tmp_path):
    """Every rank is killed; the batches up to the checkpoint and those of the next run are the uninterrupted run's."""
    need(trainer)
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = Job(dataset, str(tmp_path / "whole"), drop_last=trainer == "timm_script")
    torchrun(trainer, whole, ranks)
    killed = Job(dataset, str(tmp_path / "killed"), drop_last=whole.drop_last, kill_after=12)
    torchrun(trainer, killed, ranks, succeeds=False)
    killed.part, killed.kill_after = 1, None
    torchrun(trainer, killed, ranks)
    everything = []
    for rank in range(ranks):
        uninterrupted = read(whole, 0, rank)
        assert uninterrupted == expected(whole, rank, ranks)
        first, rest = read(killed, 0, rank)[:10], read(killed, 1, rank)
        assert first + rest == uninterrupted
        everything += first + rest
    if not whole.drop_last:
        assert_each_sample_once(everything, whole)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp"])
def test_another_number_of_ranks(wrapper, before, after, dataset, tmp_path):
    """If torchrun starts again with another number of ranks, they divide the rest of the epoch."""
    job = Job(dataset, str(tmp_path), wrapper=wrapper, kill_after=6)
    torchrun("torchrun", job, before, succeeds=False)
    job.part, job.kill_after = 1, None
    torchrun("torchrun", job, after)
    first = [line for rank in range(before) for line in read(job, 0, rank)[:5]]
    rest = [line for rank in range(after) for line in read(job, 1, rank)]
    start = state_after(job, 5, before)
    for rank in range(after):
        assert read(job, 1, rank) == expected(job, rank, after, start)
    assert_each_sample_once(first + rest, job)


@pytest.mark.slow
def test_a_node_that_dies(dataset, tmp_path):
    """Of two nodes, one is killed with its torchrun; the other one starts again alone, with the same command."""
    job = Job(dataset, str(tmp_path), kill_after=6, kill_agent=True)
    timeouts = "join_timeout=120,last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3"
    options = f"--nnodes 1:2 --nproc-per-node 1 --max-restarts 2 --rdzv-backend c10d --rdzv-conf {timeouts}"
    command = [*options.split(), "--rdzv-endpoint", f"127.0.0.1:{free_port()}", script("torchrun"), job.to_json()]
    nodes = [start("-m", "torch.distributed.run", *command, log=tmp_path / "first")]
    nodes.append(start("-m", "torch.distributed.run", *command, log=tmp_path / "second", VICTIM="yes"))
    assert nodes[0].wait(240) == 0, (tmp_path / "first").read_text()
    assert nodes[1].wait(60) == -signal.SIGKILL
    rest = read(job, 1, 0)
    assert rest == expected(job, start=state_after(job, 5, 2))
    assert_each_sample_once(read(job, 0, 0)[:5] + read(job, 0, 1)[:5] + rest, job)


@pytest.mark.slow
def test_jax_with_two_processes(dataset, tmp_path):
    need("jax_loop")
    job = Job(dataset, str(tmp_path), kill_after=12, samples=48)
    for part in range(2):
        job.part, job.kill_after = part, None if part else 12
        ranks = {"JAX_COORDINATOR": f"127.0.0.1:{free_port()}", "JAX_PROCESSES": "2"}
        logs = [tmp_path / f"log{part}-{rank}" for rank in range(2)]
        processes = [
            start(script("jax_loop"), job.to_json(), log=log, **ranks, RANK=str(rank)) for rank, log in enumerate(logs)
        ]
        codes = [process.wait(240) for process in processes]
        assert (codes == [0, 0]) == bool(part), "".join(log.read_text() for log in logs)
    for rank in range(2):
        assert read(job, 0, rank)[:10] + read(job, 1, rank) == expected(job, rank, 2)
    assert_each_sample_once(read(job, 0, 0)[:10] + read(job, 0, 1)[:10] + read(job, 1, 0) + read(job, 1, 1), job)

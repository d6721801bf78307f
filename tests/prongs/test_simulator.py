# SPDX-License-Identifier: Apache-2.0
"""The simulator agrees with the published figures, with the models, and with itself."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace.prongs._model import Watts, host_only, interleaved
from headrace.prongs._mte import Mte
from headrace.prongs._paced import Paced
from headrace.prongs._pattern import Pattern
from headrace.prongs._simulator import Setting, Simulation, simulate
from headrace.prongs._simulator_table import simulate_rows, simulate_table
from headrace.prongs._strategies import STRATEGIES
from headrace.prongs._strategy import Decision, Outlook
from headrace.prongs._wrr import Wrr


@dataclass(frozen=True)
class FirstMte(Mte):
    """The split of the first paper (DDLP, 2024), which lets the near prong rest while its batches are trained on."""

    def share(self, times, outlook: Outlook) -> Decision:
        near = round(outlook.batches * times.host / (times.host + times.near))
        return Decision(Pattern(outlook.batches - near, 1, 1))


@pytest.mark.parametrize(
    ("near", "step", "mte", "wrr"),
    [(4, 0.3, 0.870, 0.800), (4, 0.8, 0.970, 0.827), (3, 0.5, 0.888, 0.750), (10, 0.5, 0.959, 0.910)],
)
def test_figures_of_the_reconstruction(near, step, mte, wrr):
    """Seconds a batch of a host that takes one second, as the reconstructed algorithms of DDLP have them."""
    setting = Setting(host=1, near=near, step=step, copy=0.02, read=0.05, batches=2000)

    assert simulate(setting, None).seconds_a_batch == pytest.approx(1.0, abs=1.5e-3)
    assert simulate(setting, FirstMte()).seconds_a_batch == pytest.approx(mte, abs=2e-3)
    assert simulate(setting, Wrr()).seconds_a_batch == pytest.approx(wrr, abs=2e-3)
    assert simulate(setting, Paced()).seconds_a_batch == pytest.approx(wrr, rel=0.01), (
        "it leaves the near prong a little to spare"
    )
    assert simulate(setting, Mte()).seconds_a_batch < simulate(setting, FirstMte()).seconds_a_batch


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("near", [1.5, 4, 9])
@pytest.mark.parametrize("step", [0.0, 0.5, 0.9, 1.3])
def test_models(name, near, step):
    """Each strategy takes what its model says, to one per cent; none is ever slower than the host alone."""
    setting = Setting(host=1, near=near, step=step, batches=800)
    outcome = simulate(setting, STRATEGIES[name]())

    assert outcome.seconds == pytest.approx(outcome.modelled, rel=0.01)
    assert outcome.seconds <= simulate(setting, None).seconds * 1.005
    assert (outcome.off is not None) == (step == 1.3)


def test_a_trainer_that_is_slow_lets_the_host_rest():
    setting = Setting(host=0.5, near=1.0, step=0.8, batches=500)
    kept = simulate(setting, Paced(spare_host=True))

    assert kept.seconds == pytest.approx(simulate(setting, None).seconds, rel=0.01)
    assert kept.host_seconds == pytest.approx(500 * 0.5 * (1 - kept.near_batches / 500))
    assert kept.near_batches > 300


def test_several_accelerators_and_devices():
    """Each rank has its share of the devices; all walk in step by one pattern."""
    setting = Setting(host=1, near=4, step=0.2, accelerators=4, devices=8, batches=300)

    assert setting.times.near == 2
    for strategy in (Paced(), Wrr()):
        assert simulate(setting, strategy).seconds_a_batch == pytest.approx(interleaved(setting.times), rel=0.02)


def test_a_link_bounds_what_devices_bring():
    free = Setting(host=1, near=1, step=0.1, accelerators=4, devices=16, batches=300)
    tight = Setting(
        host=1, near=1, step=0.1, accelerators=4, devices=16, batches=300, batch_bytes=40e6, link_rate=40e6 * 4 / 2
    )

    assert simulate(free, Paced()).seconds_a_batch < 0.25
    assert tight.times.supply == 2
    assert simulate(tight, Paced()).seconds_a_batch == pytest.approx(2 / 3, rel=0.03)


def test_prepared_batches_in_a_row_come_as_fast_as_they_are_read():
    """`mte` trains on them back to back, `paced` has time to read each; the models say so too."""
    setting = Setting(host=1, near=4, fetch=0.4, batches=500)
    mte = simulate(setting, Mte())

    assert mte.seconds == pytest.approx(mte.modelled, rel=0.01)
    assert mte.seconds > 1.05 * simulate(Setting(host=1, near=4, batches=500), Mte()).seconds
    assert simulate(setting, Paced()).seconds_a_batch == pytest.approx(0.8, rel=0.01)


def test_what_is_read_is_taken_from_the_host():
    """Where one core makes and reads, a prepared batch costs it a little: four of its own a period become fewer."""
    setting = Setting(host=1, near=4, take=0.2, batches=500)

    assert simulate(setting, Wrr()).seconds_a_batch == pytest.approx(4 / (1 + 3.8), rel=0.01)
    assert (
        simulate(setting, Paced()).seconds_a_batch
        > simulate(Setting(host=1, near=4, batches=500), Paced()).seconds_a_batch
    )


def test_the_next_epoch_finds_batches_ready():
    """Near devices go on with the next epoch's tail, so its first near slots come at once."""
    simulation = Simulation(Setting(host=1, near=4, step=0.3, batches=200, capacity=6), Paced(), goes_on=True)
    first, second = simulation.epoch(), simulation.epoch()

    assert second.near_batches > first.near_batches
    assert second.seconds <= first.seconds


def test_uneven_times_cost_little():
    setting = Setting(host=1, near=4, step=0.3, batches=1000, unevenness=0.2, capacity=8)
    paced = [simulate(setting, Paced(), seed=seed) for seed in range(3)]

    assert all(outcome.seconds_a_batch < 1.04 * 0.8 for outcome in paced)
    assert paced[0].seconds != paced[1].seconds
    assert paced[0].seconds == simulate(setting, Paced(), seed=0).seconds


def test_energy_is_saved_where_the_near_device_is_frugal():
    watts = Watts(host=60, near=8, trainer=300, rest=60)
    setting = Setting(host=1, near=3, step=0.3, batches=400, watts=watts)
    alone, paced = simulate(setting, None), simulate(setting, Paced())

    assert 1 - paced.joules / alone.joules > 0.197
    assert alone.joules == pytest.approx(60 * 400 + 360 * alone.seconds)


def test_the_table():
    setting = Setting(host=0.1, near=0.4, step=0.02, batches=60)
    rows = simulate_rows(setting, [(1, 1), (8, 16)])

    assert [(row["accelerators"], row["devices"], row["strategy"]) for row in rows[:3]] == [
        (1, 1, name) for name in STRATEGIES
    ]
    assert all(row["gain"] > 1 for row in rows)
    text = simulate_table(batches=40, machines=[(8, 16)])
    assert "8 x 16" in text
    assert "Simulated" in text
    assert host_only(setting.times) == 0.1

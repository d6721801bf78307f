# SPDX-License-Identifier: Apache-2.0
"""Find the mix of formats that suits a machine, from measured costs.

plan("photos/", step=0.035).save("plan.json")                         # measure and solve, as `headrace plan`

calibration = calibrate("photos/", transform=[…], batch_size=64)      # measures
machine = find_machine("photos/", calibration)                        # measures
solve(calibration, machine, step=0.035).save("plan.json")             # pure arithmetic
"""

from headrace.planning._calibrate import (
    USUAL_BATCH,
    USUAL_CROP,
    ProgressHook,
    RecipeSource,
    batch_options,
    calibrate,
    usual_transform,
)
from headrace.planning._machine import find_machine, parse_emulation
from headrace.planning._model import RESOURCES, Calibration, Cost, Machine, Prediction, predict
from headrace.planning._plan import Plan, Share
from headrace.planning._planner import KnownCosts, plan
from headrace.planning._search import find_solver, worth_its_size
from headrace.planning._size import MachineGrid, Prices, SizedMachine, Sizing, parse_prices, parse_values, size_machines
from headrace.planning._solve import solve

__all__ = [
    "RESOURCES",
    "USUAL_BATCH",
    "USUAL_CROP",
    "Calibration",
    "Cost",
    "KnownCosts",
    "Machine",
    "MachineGrid",
    "Plan",
    "Prediction",
    "Prices",
    "ProgressHook",
    "RecipeSource",
    "Share",
    "SizedMachine",
    "Sizing",
    "batch_options",
    "calibrate",
    "find_machine",
    "find_solver",
    "parse_emulation",
    "parse_prices",
    "parse_values",
    "plan",
    "predict",
    "size_machines",
    "solve",
    "usual_transform",
    "worth_its_size",
]

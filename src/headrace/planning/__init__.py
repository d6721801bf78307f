# SPDX-License-Identifier: Apache-2.0
"""The mix of formats that a machine deserves: what samples cost, what the machine can do, and the plan between them.

    calibration = calibrate("photos/", transform=[…], batch_size=64)      # measures
    machine = find_machine("photos/", calibration)                        # measures
    plan(calibration, machine, step=0.035).save("plan.json")              # pure

All but `calibrate`, `find_machine` and `measure_storage` is pure arithmetic.
"""

from headrace.planning._calibrate import ProgressHook, calibrate
from headrace.planning._cost import Calibration, Cost
from headrace.planning._drift import Drift, DriftWarning, drift, watch
from headrace.planning._machine import Machine, find_machine, parse_emulation
from headrace.planning._options import USUAL_BATCH, USUAL_CROP, usual_transform
from headrace.planning._plan import Plan, Share, plan
from headrace.planning._predict import RESOURCES, Prediction, predict
from headrace.planning._search import find_solver, worth_its_size
from headrace.planning._size import MachineGrid, Prices, SizedMachine, Sizing, parse_prices, parse_values, size_machines

__all__ = [
    "RESOURCES",
    "USUAL_BATCH",
    "USUAL_CROP",
    "Calibration",
    "Cost",
    "Drift",
    "DriftWarning",
    "Machine",
    "MachineGrid",
    "Plan",
    "Prediction",
    "Prices",
    "ProgressHook",
    "Share",
    "SizedMachine",
    "Sizing",
    "calibrate",
    "drift",
    "find_machine",
    "find_solver",
    "parse_emulation",
    "parse_prices",
    "parse_values",
    "plan",
    "predict",
    "size_machines",
    "usual_transform",
    "watch",
    "worth_its_size",
]

# SPDX-License-Identifier: Apache-2.0
"""What `import headrace` brings with it. No time is asserted: what is not imported cannot be slow."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import headrace

HEAVY = {"PIL", "imagecodecs", "pyarrow", "ray", "rich", "scipy", "torch", "triton", "typer"}

LIST_MODULES = """
import sys
before = set(sys.modules)
{statement}
import json
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a statement imports in a fresh interpreter."""
    script = LIST_MODULES.format(statement=statement)
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize("statement", ["import headrace", "from headrace.codec import decode_many"])
def test_importing_needs_numpy_alone(statement):
    """Beside the standard library only NumPy is imported."""
    imported = modules_after(statement)

    assert imported & HEAVY == set()
    assert {name for name in imported if name not in sys.stdlib_module_names} == {"headrace", "numpy"}


def test_coding_an_image_imports_nothing_more():
    """Encoding and decoding do not bring in what importing left out."""
    assert (
        modules_after("import headrace, numpy as np; headrace.decode(headrace.encode(np.zeros((2, 2), 'u1')))")
        & (HEAVY)
        == set()
    )


def test_the_front_door_offers_what_it_says():
    """Every name of `headrace.__all__` is there, and nothing else that is public."""
    visible = {name for name in dir(headrace) if not name.startswith("_")}

    assert set(headrace.__all__) <= visible
    assert {
        name for name in visible - set(headrace.__all__) if not hasattr(getattr(headrace, name), "__path__")
    } == set()


def test_names_show_their_public_path():
    """Tracebacks and reprs say `headrace.codec`, not the private file."""
    assert {getattr(headrace.codec, name).__module__ for name in headrace.codec.__all__} == {"headrace.codec"}

# SPDX-License-Identifier: Apache-2.0
"""The committed stub of the extension is the one that its build generates."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from headrace import _core


def test_the_stub_is_current():
    """Generating it again changes nothing; `make stub` mends what differs."""
    stubgen = pytest.importorskip("nanobind.stubgen")
    generator = stubgen.StubGen(module=_core)
    generator.put(_core)

    assert generator.get() == Path(headrace.__file__).with_name("_core.pyi").read_text(encoding="utf-8")

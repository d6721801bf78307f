# SPDX-License-Identifier: Apache-2.0
"""A short run of the dataset fuzzer, with the same forgeries each time; `make fuzz` runs it for long."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.adversarial import fuzz


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_no_forgery_does_harm(kind: str, tmp_path: Path) -> None:
    campaign = fuzz.run(tmp_path, runs=300, kinds=(kind,))

    assert campaign.runs[kind] >= 300
    assert campaign.findings == []


def test_a_run_is_counted_and_a_finding_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that exceeds a limit is a finding, kept with the command that makes it again."""
    monkeypatch.setattr(fuzz, "_lines", lambda _: iter(["run 0", None]))

    campaign = fuzz.run(tmp_path, kinds=("manifest",), runs=1)

    assert campaign.findings
    assert "Again: python -m tests.adversarial.fuzz_worker" in next(tmp_path.glob("*/reason.txt")).read_text()

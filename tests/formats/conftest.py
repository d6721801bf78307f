# SPDX-License-Identifier: Apache-2.0
"""Every test of WebP runs over each backend that can decode it."""

from __future__ import annotations

import pytest

from headrace.formats import webp


@pytest.fixture(params=["pillow", "imagecodecs"])
def backend(request, monkeypatch):
    """Each backend in turn, forced."""
    if request.param == "imagecodecs":
        pytest.importorskip("imagecodecs")
    else:
        monkeypatch.setattr(webp, "fast_decoders", lambda: None)
    return request.param

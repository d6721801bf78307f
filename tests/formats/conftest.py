# SPDX-License-Identifier: Apache-2.0
"""Every test of WebP runs over each backend that can decode it."""

from __future__ import annotations

import pytest

from headrace import formats


@pytest.fixture(params=["pillow", "imagecodecs"])
def backend(request):
    """Each backend in turn, forced."""
    if request.param == "imagecodecs":
        pytest.importorskip("imagecodecs")
    formats.use_backend(request.param)
    yield request.param
    formats.use_backend("auto")

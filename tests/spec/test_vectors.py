# SPDX-License-Identifier: Apache-2.0
"""The frozen vectors: whole, as their manifest says, and judged alike by the oracle and every target of the codec."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import decoder
import numpy as np
import pytest

import headrace
import headrace.codec
import headrace.errors

VECTORS = Path(__file__).resolve().parents[2] / "spec" / "vectors"
MANIFEST = json.loads((VECTORS / "manifest.json").read_text())
IMPLEMENTATIONS = ["oracle", *headrace.codec.targets()]


@pytest.fixture(params=IMPLEMENTATIONS)
def decode(request):
    """Each way to decode a file."""
    if request.param == "oracle":
        yield decoder.decode
        return
    before = headrace.codec.active_target()
    headrace.codec.use_target(request.param)
    yield headrace.decode
    headrace.codec.use_target(before)


def read(folder, name):
    data = (VECTORS / folder / f"{name}.hri").read_bytes()
    assert hashlib.sha256(data).hexdigest() == MANIFEST[folder][name]["file_sha256"], "the file is not the frozen one"
    return data


@pytest.mark.parametrize("name", MANIFEST["valid"])
def test_valid_vector_gives_its_pixels(name, decode):
    expected = MANIFEST["valid"][name]
    image = decode(read("valid", name))
    carried = np.ascontiguousarray(image, image.dtype.newbyteorder("<"))

    assert image.dtype.name == expected["dtype"]
    assert list(image.shape) == expected["shape"]
    assert hashlib.sha256(carried.tobytes()).hexdigest() == expected["pixels_sha256"]


@pytest.mark.parametrize("name", MANIFEST["invalid"])
def test_invalid_vector_raises_its_kind_of_error(name, decode):
    expected = MANIFEST["invalid"][name]
    data = read("invalid", name)
    errors = decoder if decode is decoder.decode else headrace.errors

    with pytest.raises(getattr(errors, expected["error"])) as raised:
        decode(data)
    if errors is decoder:
        assert expected["oracle_says"] in str(raised.value), "rejected, but not for its own flaw"


def test_inspect_agrees_with_the_oracle():
    for name in MANIFEST["valid"]:
        data = read("valid", name)
        info, expected = headrace.inspect(data), decoder.inspect(data)
        found = {
            **{key: getattr(info, key) for key in ("width", "height", "channels", "mode")},
            "dtype": info.dtype.name,
            "tile_width": info.tile_shape[1],
            "metadata": dict(info.metadata),
            "bytes": info.n_bytes,
        }

        assert found == {key: expected[key] for key in found}, name


@pytest.mark.parametrize("folder", ["valid", "invalid"])
def test_manifest_lists_every_file(folder):
    assert sorted(path.stem for path in (VECTORS / folder).iterdir()) == sorted(MANIFEST[folder])


def test_every_class_has_a_vector():
    tables = {8: decoder.CLASSES_8, 16: decoder.CLASSES_16}
    expected = {f"class-{n}-{i:02}" for n, table in tables.items() for i in range(len(table))}

    assert expected <= set(MANIFEST["valid"])


def test_vectors_stay_small():
    assert sum(path.stat().st_size for path in VECTORS.glob("*/*.hri")) < 200_000

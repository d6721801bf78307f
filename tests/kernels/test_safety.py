# SPDX-License-Identifier: Apache-2.0
"""Hostile bytes behind checksums that match: the CPU's verdict and pixels, and no address outside of its own memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.adversarial.specimens import SPECIMENS
from tests.adversarial.test_mutations import mutations
from tests.codec.pictures import Recipe
from tests.kernels import interpreter
from tests.kernels.devices import DEVICE, HAS_GPU

import headrace
from headrace.errors import CorruptImage, HeadraceError
from headrace.kernels import _batch, _decode, decode_batch, decode_staged, stage_batch
from headrace.kernels.tables import TileField

TILED = ("palette", "packed", "coded", "many tiles", "ranks")


def cpu(data):
    try:
        return np.moveaxis(np.atleast_3d(headrace.decode(data)), 2, 0)
    except CorruptImage:
        return None


def passes_the_host(data):
    """Whether all that is wrong with a file, if anything, is inside of its tiles."""
    try:
        stage_batch([data])
    except HeadraceError:
        assert cpu(data) is None, "the host refuses what the CPU decodes"
        return False
    return True


def mutants(seed, count):
    found = []
    for name, data in SPECIMENS.items():
        if name.startswith(TILED):
            found += [mutant for mutant in mutations(data, seed, count) if passes_the_host(mutant)]
    return found


def assert_verdicts(datas, images, status):
    for data, image, code in zip(datas, images, status, strict=True):
        expected = cpu(data)
        assert (expected is None) == (code != 0), f"the verdict differs on {data.hex()}"
        if expected is not None:
            assert np.array_equal(image.cpu().numpy().astype(np.int64) & 0xFFFF, expected.astype(np.int64) & 0xFFFF)


def decode_all(datas, backend):
    """Every image as int16, in which uint8 and the bits of uint16 are told apart by nobody."""
    status = torch.zeros(len(datas), dtype=torch.int32, device=DEVICE)
    groups = {}
    for i, data in enumerate(datas):
        groups.setdefault(headrace.inspect(data).dtype.name, []).append(i)
    images = [None] * len(datas)
    for own in groups.values():
        codes = torch.zeros(len(own), dtype=torch.int32, device=DEVICE)
        decoded = decode_batch([datas[i] for i in own], device=DEVICE, backend=backend, status=codes)
        for i, image in zip(own, decoded, strict=True):
            images[i] = image
        status[torch.tensor(own, device=DEVICE)] = codes
    return images, status.tolist()


def test_mutations_have_the_verdict_of_the_cpu(backend):
    datas = mutants(11, 2)
    images, status = decode_all(datas, backend)

    assert_verdicts(datas, images, status)
    assert 0 < status.count(0) < len(status)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 30))
def test_many_mutations_have_the_verdict_of_the_cpu(seed, backend):
    datas = mutants(seed, 60)
    images, status = decode_all(datas, backend)

    assert_verdicts(datas, images, status)


@pytest.fixture
def ranges(monkeypatch):
    """Addresses that kernels may use: tables, each tile's own bytes, scratch, status and output, and no others."""
    if HAS_GPU:
        pytest.skip("addresses are checked in the interpreter")
    found = interpreter.Ranges()
    on_device = _batch.on_device

    def watched(*args, **options):
        batch = on_device(*args, **options)
        found.forget()  # an earlier batch, whose memory may be this one's now
        for tensor in (batch.values, batch.entries, batch.numbers, batch.status, batch.out):
            found.allow(tensor, write=True)
        for name, part in batch.staged.parts.items():
            if name != "payload":
                found.allow(part.of_device(batch.buffer))
        payload = batch.payload.data_ptr()
        for at, length in batch.tiles[[TileField.AT, TileField.LENGTH]].T.tolist():
            found.allow_bytes(payload + at, payload + at + length - found.cut)
        return batch

    monkeypatch.setattr(_decode, "on_device", watched)
    return found


def test_no_address_is_out_of_range(ranges, triton_backend):
    """Not between two tiles of the payload, not before and not behind what was allocated."""
    datas = mutants(12, 2)
    with interpreter.checked(ranges):
        images, status = decode_all(datas, triton_backend)

    assert ranges.checked > 50_000
    assert_verdicts(datas, images, status)


def test_sound_images_stay_in_range_too(ranges, triton_backend):
    datas = [headrace.encode(Recipe(35, 40, 2, content="smooth").render(), mode=mode) for mode in ("fast", "dense")]
    with interpreter.checked(ranges):
        decode_batch(datas, regions=[(3, 5, 30, 33), None], device=DEVICE, backend=triton_backend)

    assert ranges.checked > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 36))
def test_no_address_of_many_mutations_is_out_of_range(seed, ranges, triton_backend):
    datas = mutants(seed, 40)
    with interpreter.checked(ranges):
        images, status = decode_all(datas, triton_backend)

    assert_verdicts(datas, images, status)


@pytest.mark.parametrize("mode", ["fast", "dense"])
def test_the_address_check_is_exact_to_a_byte(mode, ranges, triton_backend):
    """If the last byte of each tile were not its own, sound files would read what they must not."""
    ranges.cut = 1
    data = headrace.encode(Recipe(8, 8, 3, content="noise").render(), mode=mode)
    with interpreter.checked(ranges), pytest.raises(Exception, match=r"1 of .* addresses are out of range"):
        decode_batch([data], device=DEVICE, backend=triton_backend)


def test_what_lies_between_tiles_does_not_matter(triton_backend):
    """Two poisons in the gaps of the payload, and all of the memory behind it: the same pixels and verdicts."""
    datas = [data for data in mutants(13, 2) if headrace.inspect(data).dtype == np.uint8]
    outcomes = []
    for poison in (0x00, 0xFF):
        room = torch.full((1 << 20,), poison, dtype=torch.uint8)
        staged = stage_batch(datas, buffer=room)
        status = torch.zeros(len(datas), dtype=torch.int32, device=DEVICE)
        buffer = staged.buffer.to(DEVICE)
        images = decode_staged(staged, buffer, status=status, backend=triton_backend)
        codes = status.tolist()
        outcomes.append((codes, [image for image, code in zip(images, codes, strict=True) if not code]))

    assert outcomes[0][0] == outcomes[1][0]
    assert all(torch.equal(one, other) for one, other in zip(outcomes[0][1], outcomes[1][1], strict=True))

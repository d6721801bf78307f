# SPDX-License-Identifier: Apache-2.0
"""Tiny images, and the datasets that people keep them in."""

from __future__ import annotations

import io
import json
import random
import tarfile

import numpy as np
from PIL import Image

from headrace import formats


def pixels(seed, height=6, width=5, channels=3):
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def png(seed, **shape):
    stream = io.BytesIO()
    Image.fromarray(pixels(seed, **shape)).save(stream, "PNG")
    return stream.getvalue()


def write(root, files):
    """Write files, given by relative path, and the folders that they need."""
    for relative, contents in files.items():
        path = root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)


def write_tar(path, members, mode="w"):
    """Members are (name, contents), or ready TarInfos without contents."""
    with tarfile.open(path, mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                header = tarfile.TarInfo(member[0])
                header.size = len(member[1])
                archive.addfile(header, io.BytesIO(member[1]))


def write_coco(root, images, annotations, categories=None, name="instances_train2017.json"):
    """Images are given by id and written as id.png."""
    categories = categories or [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}]
    write(root, {f"train2017/{number}.png": png(number) for number in images})
    described = [{"id": number, "file_name": f"{number}.png", "height": 6, "width": 5} for number in images]
    text = json.dumps({"info": {"a": [1]}, "images": described, "annotations": annotations, "categories": categories})
    write(root, {f"annotations/{name}": text.encode()})
    return root / "annotations" / name


def keys(source):
    return [item.key for item in source.items()]


def samples(source):
    return [source.load(item) for item in source.items()]


def decoded(image):
    return formats.decode(image.data)


def damaged(whole, count):
    """Yield versions of a file with flipped bits, some of them truncated."""
    rng = random.Random(0)
    for _ in range(count):
        changed = bytearray(whole)
        if rng.random() < 0.3:
            del changed[rng.randrange(len(changed)) :]
        for _ in range(rng.randint(1, 3)):
            if changed:
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        yield changed

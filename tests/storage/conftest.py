# SPDX-License-Identifier: Apache-2.0
"""An S3 server on loopback with a dataset in it, behind a proxy that can spoil answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import obstore
import pytest
from PIL import Image
from tests.storage.faulty_proxy import FaultyProxy

import headrace
from headrace.storage import Objects

SAMPLES = 30


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of noisy slopes in three shards, as a local folder."""
    folder = tmp_path_factory.mktemp("remote")
    rng = np.random.default_rng(0)
    for number in range(SAMPLES):
        slope = np.add.outer(np.arange(60 + number), np.arange(90))[..., None] + rng.integers(
            0, 16, (60 + number, 90, 3)
        )
        file = folder / "photos" / f"class{number % 2}" / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(slope.astype(np.uint8)).save(file)
    headrace.build(folder / "photos", folder / "photos.hr", shard_size=140_000)
    return folder / "photos.hr"


def upload(local: Path, objects: Objects) -> None:
    for file in sorted(local.rglob("*")):
        if file.is_file():
            obstore.put(objects.store, file.relative_to(local).as_posix(), file)


@pytest.fixture(scope="session")
def server(local: Path) -> Iterator[int]:
    """The port of an S3 server that has the dataset in `s3://bucket/photos.hr`."""
    moto = pytest.importorskip("moto.server", reason="moto's S3 server is not installed")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    _, port = running.get_host_and_port()
    options = store_options(f"http://127.0.0.1:{port}")
    import boto3  # noqa: PLC0415 - comes with moto

    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=options["endpoint"], **keys).create_bucket(Bucket="bucket")
    upload(local, Objects("s3://bucket/photos.hr", options))
    yield port
    running.stop()


@pytest.fixture
def proxy(server: int) -> Iterator[FaultyProxy]:
    with FaultyProxy(server) as running:
        yield running


def store_options(endpoint: str) -> dict[str, object]:
    return {
        "endpoint": endpoint,
        "access_key_id": "key",
        "secret_access_key": "very-secret",
        "region": "us-east-1",
        "allow_http": True,
        "virtual_hosted_style_request": False,
        "timeout": "2s",
    }


@pytest.fixture
def options(proxy: FaultyProxy) -> dict[str, object]:
    """The storage options that lead to the proxy."""
    return store_options(proxy.url)

# SPDX-License-Identifier: Apache-2.0
"""URLs of datasets in object stores: which there are, and how they are shown without credentials."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

SCHEMES = ("s3", "gs", "az", "http", "https", "hf", "memory")
"""The stores that a dataset can be opened from: S3, Google Cloud, Azure, HTTP, the Hugging Face Hub, and memory."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_QUERY = re.compile(r"(://[^\s?'\"]*)\?[^\s'\"]*")


def is_url(path: Any) -> bool:
    """Return whether a path names an object store rather than a local folder.

    Raises:
        ValueError: It is a URL of an unknown kind, or it contains credentials.

    """
    found = _URL.match(path) if isinstance(path, str) else None
    if found is None:
        return False
    if found[1] not in SCHEMES:
        raise ValueError(
            f"the URL of a dataset must start with {', '.join(f'{each}://' for each in SCHEMES)}; got {found[1]}://"
        )
    parts = urlsplit(path)
    if "@" in parts.netloc or parts.query or parts.fragment:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise ValueError(
            f"the URL of a dataset must have no user name, query or fragment; use {shown} and pass credentials in "
            f"storage_options or the environment"
        )
    return True


def join_url(url: str, name: str) -> str:
    """Return the URL of an object of a dataset."""
    return f"{url.rstrip('/')}/{name}"


def without_queries(message: str) -> str:
    """Remove the queries of all URLs in a message of a library. They may be signatures that give access."""
    return _QUERY.sub(r"\1", message)

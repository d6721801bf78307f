# SPDX-License-Identifier: Apache-2.0
"""Objects under one prefix of an object store, read with obstore (extra `cloud`).

Clients are made when they are first used, in each process: obstore's threads do not survive a fork. Credentials come
from the environment or from `storage_options`; they are never shown.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import HeadraceError, MissingExtra, StoreError
from headrace.storage._url import join_url, without_queries

MAX_TRIES = 6
"""Attempts for one request, with pauses of 0.1 to 6 s between them."""

# Options of the HTTP client. All other options are those of the store.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_headers",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
_CLIENT_DEFAULTS = {"connect_timeout": "5s", "timeout": "30s"}
# Requests are repeated here, where the pauses are known, so the library repeats only what costs no time.
_RETRY = {"max_retries": 1}
REPLACED = "it has been replaced since it was opened: open the dataset again"
# Errors that another attempt cannot change, and what to do about them.
_FINAL = {
    "NotFoundError": "it does not exist",
    "PermissionDeniedError": "access is denied: check the permissions of the credentials",
    "UnauthenticatedError": "the credentials are missing or wrong: set them in the environment or in storage_options",
    "PreconditionError": REPLACED,
    "InvalidPathError": "its name is not valid",
    "NotSupportedError": "the store does not support the request",
    "UnknownConfigurationKeyError": "storage_options has a key that this store does not have",
}

_first_process: int | None = None
"""The process in which obstore started its threads."""
_memory: dict[str, Any] = {}


class Objects:
    """The objects under a URL. Thread-safe; can be pickled, but not used in a process that was forked afterwards."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self._options = dict(options or {})
        self._store: Any = None

    @property
    def store(self) -> Any:
        """The client of this process.

        Raises:
            MissingExtra: obstore is not installed.
            StoreError: The options are wrong, or the process was forked after another one had made a client.

        """
        global _first_process  # noqa: PLW0603 - obstore's threads belong to the process, not to an object
        if _first_process not in (None, os.getpid()):
            raise StoreError(
                f"{self.url} cannot be read in a process that was forked after its parent had opened it: use "
                f"multiprocessing_context='spawn' or 'forkserver', or headrace.Loader, which uses threads"
            )
        if self._store is None:
            _first_process = os.getpid()
            self._store = self._make_store()
        return self._store

    def _make_store(self) -> Any:
        try:
            from obstore import store  # noqa: PLC0415 - an extra, and not needed for local datasets
        except ImportError:
            raise MissingExtra(f"{self.url}: object stores need obstore: pip install 'headrace[cloud]'") from None
        parts = urlsplit(self.url)
        if parts.scheme == "memory":
            return _memory.setdefault(self.url, store.MemoryStore())
        client = _CLIENT_DEFAULTS | {k: v for k, v in self._options.items() if k in _CLIENT_OPTIONS}
        config = {k: v for k, v in self._options.items() if k not in _CLIENT_OPTIONS}
        url = self.url
        if parts.scheme == "hf":
            url = _hub_url(parts.netloc, parts.path, config, client)
        try:
            make: Any = store.from_url  # its types list the options of each store; ours are the user's
            return make(url, config=config or None, client_options=client, retry_config=dict(_RETRY))
        except Exception as error:  # noqa: BLE001 - the library has no base class for its errors
            raise self._error("", error) from None

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_options": self._options, "_store": None}

    def __repr__(self) -> str:
        return f"<Objects of {self.url}>"

    def get(self, name: str, max_bytes: int | None = None) -> tuple[bytes, str | None]:
        """Return an object and its ETag.

        Raises:
            FileNotFoundError: There is no such object.
            StoreError: It cannot be read, or it has more than `max_bytes`.

        """
        import obstore  # noqa: PLC0415 - `store` reports its absence

        for attempt in range(MAX_TRIES):
            try:
                found = obstore.get(self.store, name)
                n_bytes = int(found.meta["size"])
                _check_size(join_url(self.url, name), n_bytes, max_bytes)
                content = bytes(found.bytes())
                if len(content) == n_bytes:
                    return content, found.meta["e_tag"]
                failure: Exception = OSError(f"it ended after {len(content)} of {n_bytes} bytes")
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - sorted below
                if type(error).__name__ in ("NotFoundError", "FileNotFoundError"):
                    raise FileNotFoundError(f"{join_url(self.url, name)} does not exist") from None
                failure = error
            if not can_retry(failure):
                break
            time.sleep(pause_after(attempt))
        raise self._error(name, failure)

    async def get_range(self, name: str, start: int, end: int, etag: str | None) -> tuple[Any, str | None]:
        """Return bytes [start, end) of an object and its ETag, which must be `etag` unless that is None.

        Tries once; the caller repeats it where `can_retry` says so.
        """
        import obstore  # noqa: PLC0415 - `store` reports its absence

        options: Any = {"range": (start, end)}
        if etag is not None:
            options["if_match"] = etag
        found = await obstore.get_async(self.store, name, options=options)
        content = await found.bytes_async()
        if tuple(found.range) != (start, end) or len(content) != end - start:
            raise OSError(
                f"the store must return bytes {start} to {end}; it returned {len(content)} bytes of {found.range}"
            )
        return content, found.meta["e_tag"]

    def _error(self, name: str, error: Exception) -> StoreError:
        return as_store_error(join_url(self.url, name) if name else self.url, error)


def _check_size(where: str, n_bytes: int, max_bytes: int | None) -> None:
    if max_bytes is not None and n_bytes > max_bytes:
        raise StoreError(f"{where} must have at most {max_bytes} bytes; it has {n_bytes}")


def can_retry(error: Exception) -> bool:
    """Return whether another attempt may succeed: after time-outs, resets, 429, 5xx and short answers."""
    return not isinstance(error, HeadraceError) and type(error).__name__ not in _FINAL


def pause_after(attempt: int) -> float:
    """Return how many seconds to wait after a failed attempt: longer each time, and different in each process."""
    return min(0.1 * 2.0**attempt, 6.0) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def as_store_error(where: str, error: Exception) -> StoreError:
    """Return the error that users get, without credentials."""
    if isinstance(error, StoreError):
        return error
    reason = _FINAL.get(type(error).__name__)
    if reason is None:
        reason = without_queries(str(error)).strip().splitlines()[0][:300] if str(error).strip() else repr(error)
    return StoreError(f"{where}: {reason}")


def _hub_url(owner: str, path: str, config: dict[str, Any], client: dict[str, Any]) -> str:
    """Return the HTTP address of `hf://datasets/OWNER/NAME[@REVISION]/PATH`."""
    kind, *rest = [owner, *path.strip("/").split("/")]
    if kind != "datasets" or len(rest) < 2:
        raise StoreError("a URL of the Hugging Face Hub must be hf://datasets/OWNER/NAME[@REVISION]/PATH")
    name, _, revision = rest[1].partition("@")
    token = config.pop("token", None) or os.environ.get("HF_TOKEN")
    endpoint = (config.pop("endpoint", None) or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    if token:
        client["default_headers"] = {**client.get("default_headers", {}), "authorization": f"Bearer {token}"}
    return "/".join([endpoint, "datasets", rest[0], name, "resolve", revision or "main", *rest[2:]])

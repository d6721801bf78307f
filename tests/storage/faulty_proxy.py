# SPDX-License-Identifier: Apache-2.0
"""An HTTP proxy on loopback in front of a store's server, which spoils the answers that a test chooses."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

Fault = Callable[["Exchange"], None]


class Exchange:
    """One request and the answer of the server, which a fault may change or drop."""

    def __init__(self, path: str, headers: dict[str, str], status: int, answered: dict[str, str], body: bytes) -> None:
        self.path, self.request_headers = path, headers
        self.status, self.headers, self.body = status, answered, body
        self.is_reset = False
        self.sent_bytes: int | None = None

    @property
    def is_range(self) -> bool:
        return "Range" in self.request_headers or "range" in self.request_headers


class FaultyProxy:
    """Passes requests to a server. `fault` is called with every exchange; `seen` counts requests and bytes."""

    def __init__(self, port: int) -> None:  # noqa: C901 - a class of the standard library is completed here
        self.fault: Fault | None = None
        self.latency = 0.0
        self.requests = self.ranges = self.bytes = 0
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                content = self.rfile.read(length) if length else None
                server = http.client.HTTPConnection("127.0.0.1", port)
                server.request(self.command, self.path, content, dict(self.headers))
                answer = server.getresponse()
                headers = {k: v for k, v in answer.getheaders() if k.lower() not in ("connection", "transfer-encoding")}
                found = Exchange(self.path, dict(self.headers), answer.status, headers, answer.read())
                server.close()
                with proxy._lock:
                    proxy.requests += 1
                    proxy.ranges += found.is_range
                    proxy.bytes += len(found.body) if found.is_range else 0
                    if proxy.fault is not None:
                        proxy.fault(found)
                time.sleep(proxy.latency)
                self.answer(found)

            def answer(self, found: Exchange) -> None:
                if found.is_reset:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                    self.close_connection = True
                    return
                self.send_response(found.status)
                for name, value in found.headers.items():
                    if name.lower() != "content-length" or self.command == "HEAD":
                        self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(found.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(found.body[: found.sent_bytes])
                if found.sent_bytes is not None:
                    self.close_connection = True

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do  # noqa: N815 - names of the standard library

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def status(code: int) -> Fault:
    """Answer with an error of the server."""

    def spoil(found: Exchange) -> None:
        found.status, found.body, found.headers = code, b"busy", {"Content-Type": "text/plain"}

    return spoil


def reset(found: Exchange) -> None:
    """Close the connection with a reset."""
    found.is_reset = True


def truncate(found: Exchange) -> None:
    """Announce the body and send half of it."""
    found.sent_bytes = len(found.body) // 2


def flip_a_bit(found: Exchange) -> None:
    """Change one bit of the body."""
    at = len(found.body) // 2
    found.body = found.body[:at] + bytes([found.body[at] ^ 1]) + found.body[at + 1 :]


def wrong_range(found: Exchange) -> None:
    """Answer with other bytes than were asked for, and say so."""
    kind, _, total = found.headers.get("Content-Range", "bytes 0-0/1").partition("/")
    start = int(kind.split()[1].split("-")[0]) + 1
    found.headers["Content-Range"] = f"bytes {start}-{start + len(found.body) - 1}/{total}"


def another_version(found: Exchange) -> None:
    """Answer with another ETag, as if the object had been replaced."""
    found.headers["ETag"] = '"another"'


class Sometimes:
    """Applies a fault to every nth range request."""

    def __init__(self, fault: Fault, every: int) -> None:
        self._fault, self._every = fault, every
        self.done = self._seen = 0

    def __call__(self, found: Exchange) -> None:
        if found.is_range:
            self._seen += 1
            if self._seen % self._every == 0:
                self.done += 1
                self._fault(found)

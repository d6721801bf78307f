# SPDX-License-Identifier: Apache-2.0
"""Messages between a loader and the process that works for it: a JSON header, bytes, and a file handle at times.

A message is two little-endian 32-bit lengths, the header and the bytes. Nothing in it is code.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
from collections import deque
from typing import Any, NamedTuple

_LENGTHS = struct.Struct("<II")
_READ_BYTES = 1 << 16
_MOST_HANDLES = 16


class Hangup(Exception):
    """The other side is gone, or this one has closed the channel."""


class Message(NamedTuple):
    """What came in."""

    header: dict[str, Any]
    payload: bytes
    handle: int | None


class Channel:
    """One end of a conversation. One thread may receive while another sends; each of the two by one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.setblocking(True)
        self._buffer = bytearray()
        self._handles: deque[int] = deque()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        # Set while bytes are on their way: Ctrl-C may strike there and leave half a message behind.
        self._writing = self._reading = False

    def send(self, header: dict[str, Any], payload: bytes = b"", handle: int | None = None) -> None:
        """Send a message; a handle goes with it. Raises Hangup."""
        if handle is not None:
            header = {**header, "handle": True}
        text = json.dumps(header, separators=(",", ":")).encode()
        packed = _LENGTHS.pack(len(text), len(payload)) + text + payload
        if self._writing:
            raise Hangup("a message was interrupted")
        self._writing = True
        try:
            sent = 0 if handle is None else socket.send_fds(self._socket, [packed], [handle])
            self._socket.sendall(memoryview(packed)[sent:])
        except OSError as error:
            raise Hangup(str(error)) from error
        self._writing = False

    def receive(self, timeout: float) -> Message | None:
        """Wait for the next message; None if none came in time. Raises Hangup."""
        if self._reading:
            raise Hangup("a message was interrupted")
        message = self._next()
        while message is None:
            try:
                if not self._poll.poll(1000 * max(timeout, 0)):
                    return None
                self._reading = True
                received, handles, _, _ = socket.recv_fds(self._socket, _READ_BYTES, _MOST_HANDLES, _CLOSE_ON_EXEC)
            except (OSError, ValueError) as error:  # ValueError: this side was closed
                raise Hangup(str(error)) from error
            self._handles.extend(handles)
            if not received:
                raise Hangup("the other side has closed")
            self._buffer += received
            self._reading = False
            message = self._next()
        return message

    def _next(self) -> Message | None:
        """Take a whole message from what has been read."""
        if len(self._buffer) < _LENGTHS.size:
            return None
        header_bytes, payload_bytes = _LENGTHS.unpack_from(self._buffer)
        middle = _LENGTHS.size + header_bytes
        end = middle + payload_bytes
        if len(self._buffer) < end:
            return None
        header = json.loads(self._buffer[_LENGTHS.size : middle])
        payload = bytes(self._buffer[middle:end])
        del self._buffer[:end]
        return Message(header, payload, self._handles.popleft() if header.get("handle") else None)

    def hang_up(self) -> None:
        """End the conversation for both sides, also where a forked process has a copy of this end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the file handles back; nobody may be receiving."""
        self._socket.close()
        while self._handles:
            os.close(self._handles.popleft())


_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

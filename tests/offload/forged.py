# SPDX-License-Identifier: Apache-2.0
"""Files of an exchange as an attacker would write them: every checksum is right, and what it covers is not."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headrace.offload.exchange import HostExchange
from headrace.offload.exchange._batch_file import BatchFile
from headrace.offload.exchange._batch_header import CHECKSUM_PLACE
from headrace.offload.exchange._documents import HostRequest
from headrace.offload.exchange._files import CELL_BYTES, pack_cell
from headrace.offload.exchange._folder import make_rank_folder
from headrace.offload.exchange._liveness import this_process
from headrace.records.checksum import crc32c, to_hex

DEEP = "[" * 3000
BOTTOMLESS = '{"a":' * 700 + "1" + "}" * 700
DIGITS = "9" * 3000
TERABYTE = 1 << 40


def cell(text: str | bytes) -> bytes:
    """A cell that holds any text at all."""
    content = text if isinstance(text, bytes) else text.encode()
    content = (b" " + content).ljust(CELL_BYTES - 18) + b"\n"
    return b"headrace " + to_hex(crc32c(content)).encode() + content


def edited_cell(document: dict[str, Any], **members: Any) -> bytes:
    """A cell with other members; what is `...` is left out."""
    merged = {**document, **members}
    return pack_cell({name: value for name, value in merged.items() if value is not ...})


def raw_member(document: dict[str, Any], name: str, text: str) -> bytes:
    """A cell in which a member is written as no JSON encoder writes it."""
    return cell(json.dumps({**document, name: "@"}).replace('"@"', text))


def plant(folder: Path, recipe: dict[str, Any], **request: Any) -> HostRequest:
    """Make a rank that is as it should be, and that nobody keeps."""
    defaults = {"session": os.urandom(8).hex(), "beat": 1, "stretches": (), "closed": False}
    made = HostRequest(**{**defaults, "process": this_process(), **request})
    content = json.dumps(recipe, sort_keys=True, separators=(",", ":")).encode()
    make_rank_folder(folder, made, content, None)
    return made


def host(folder: Path) -> HostExchange:
    """An honest host of rank 1."""
    return HostExchange(folder, run="run", rank=1, recipe={"version": 1})


def put(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link(path: Path, target: str | Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def sparse(path: Path, n_bytes: int = TERABYTE) -> None:
    """A file that claims a terabyte and takes none."""
    put(path, b"")
    os.truncate(path, n_bytes)


def directory(path: Path) -> None:
    """A folder in the place of a file."""
    path.unlink(missing_ok=True)
    path.mkdir()


def content_of(file: BatchFile) -> bytes:
    return b"".join(bytes(piece) for piece in file.pieces)


def summed(content: bytes) -> bytes:
    """The same file with the checksum that it should have."""
    changed = bytearray(content)
    changed[CHECKSUM_PLACE.begin : CHECKSUM_PLACE.begin + CHECKSUM_PLACE.size] = b"0" * CHECKSUM_PLACE.size
    changed[CHECKSUM_PLACE.begin : CHECKSUM_PLACE.begin + CHECKSUM_PLACE.size] = to_hex(crc32c(changed)).encode()
    return bytes(changed)


def reheaded(content: bytes, edit: Callable[[dict[str, Any]], str | None]) -> bytes:
    """A prepared batch with another header, and the right checksum; `edit` changes it, or returns its text."""
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    text = (edit(header) or json.dumps(header, separators=(",", ":"))).encode()
    text = text.ljust(-(-(8 + len(text)) // 4096) * 4096 - 8)
    return summed(struct.pack("<Q", len(text)) + text + content[8 + length :])


def edit_label(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(header: dict[str, Any]) -> None:
        described = json.loads(header["__metadata__"]["headrace"])
        header["__metadata__"]["headrace"] = json.dumps({**described, name: value}, separators=(",", ":"))

    return edit


def edit_labels(edit: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], None]:
    """Change what a prepared batch says of itself in any way."""

    def edit_header(header: dict[str, Any]) -> None:
        described = json.loads(header["__metadata__"]["headrace"])
        header["__metadata__"]["headrace"] = json.dumps(edit(described), separators=(",", ":"))

    return edit_header


def edit_tensor(**members: Any) -> Callable[[dict[str, Any]], None]:
    def edit(header: dict[str, Any]) -> None:
        header["image"].update(members)

    return edit


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def rows_file(rows: Any) -> bytes:
    array = np.asarray(rows)
    return npy(repr({"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}), array.tobytes())

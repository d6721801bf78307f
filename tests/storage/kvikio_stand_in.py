# SPDX-License-Identifier: Apache-2.0
"""A small kvikio: the parts of it that are used, with the driver's answers given by the test."""

from __future__ import annotations

import enum
import os
import sys
import types
from pathlib import Path
from typing import Any, Self

NAMES = ("kvikio", "kvikio.defaults", "kvikio.cufile_driver")


class CompatMode(enum.IntEnum):
    """As kvikio has it."""

    OFF = 0
    ON = 1
    AUTO = 2


class Future:
    """A read that is done when it is asked for."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def get(self) -> int:
        if isinstance(self._result, Exception):
            raise self._result
        return int(self._result)


class CuFile:
    """Reads into tensors and notes where it read, and whether those who read had closed it."""

    reads: list[tuple[int, int]] = []  # noqa: RUF012 - a diary for the tests
    fails_at: int | None = None
    shortens = 0

    def __init__(self, path: str, flags: str = "r") -> None:
        assert flags == "r"
        self._file = Path(path).open("rb")  # noqa: SIM115 - closed like kvikio's own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def pread(self, buf: Any, size: int | None = None, file_offset: int = 0, task_size: int | None = None) -> Future:
        assert task_size is None
        assert buf.is_contiguous()
        wanted = buf.numel() if size is None else size
        CuFile.reads.append((file_offset, wanted))
        if file_offset == CuFile.fails_at:
            return Future(RuntimeError("cuFile error: an I/O error"))
        data = os.pread(self._file.fileno(), wanted - CuFile.shortens, file_offset)
        buf.numpy()[: len(data)] = memoryview(data)
        return Future(len(data))


def install(monkeypatch: Any, *, mode: CompatMode | bool = CompatMode.AUTO, gds: bool = True, age: str = "new") -> Any:
    """Let `import kvikio` find this, of the `new` make with common settings or the `old` one with a function each."""
    monkeypatch.setattr(CuFile, "reads", [])
    package, defaults, driver = (types.ModuleType(name) for name in NAMES)
    package.CuFile = CuFile
    driver.opened = 0

    def driver_open() -> None:
        if not gds:
            raise RuntimeError("cuFile is not available")
        driver.opened += 1

    def driver_close() -> None:
        driver.opened -= 1

    driver.driver_open, driver.driver_close = driver_open, driver_close
    if age == "new":
        package.CompatMode = CompatMode
        defaults.get = {"compat_mode": mode}.__getitem__
        driver.get = {"is_gds_available": gds}.__getitem__
    else:
        defaults.compat_mode = lambda: mode
        driver.DriverProperties = lambda: types.SimpleNamespace(is_gds_available=gds)
    package.defaults, package.cufile_driver = defaults, driver
    for name, module in zip(NAMES, (package, defaults, driver), strict=True):
        monkeypatch.setitem(sys.modules, name, module)
    return package

# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, spoken to through its debugging pipe: JSON messages that end in a zero byte."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60.0
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # which root cannot have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """The browser's path, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Send a command and give its result; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, page: Path, width: int, *, scheme: str = "light") -> None:
        """Show a page at a width, once it is loaded to its end."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not self.named("Page.loadEventFired"):
            self.events.append(self._receive())

    def evaluate(self, expression: str) -> Any:
        """Run JavaScript in the page, past its own policy against scripts, and give the value."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def named(self, *methods: str) -> list[dict[str, Any]]:
        """The events of some kinds since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the browser was silent for {SECONDS:g} s"
            piece = os.read(self._from, 1 << 16)
            assert piece, "the browser ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def running(path: str, profile: Path) -> Iterator[Browser]:
    """Start a browser and end it."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    # A shell puts the pipes where the browser looks for them: Popen cannot number what it passes on.
    command = f'exec "$0" "$@" 3<&{in_read} 4>&{out_write}'
    arguments = ["bash", "-c", command, path, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(
        arguments, pass_fds=(in_read, out_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        os.close(in_read)
        os.close(out_write)
        try:
            browser = Browser(in_write, out_read)
            yield browser
            browser._session = None
            browser.call("Browser.close")
            process.wait(SECONDS)
        finally:
            process.kill()
            os.close(in_write)
            os.close(out_read)

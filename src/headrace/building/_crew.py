# SPDX-License-Identifier: Apache-2.0
"""Workers, as threads or as processes, behind one way to talk to them.

Processes are started by this package's own entry point: a script that calls `headrace.build` needs no `__main__` guard,
and a process that has threads is never forked. They end when their pipe does, however the builder dies.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any, Protocol

from headrace.building._chunk import Failed, Place, Sized, Stop, Task, Worker, Written
from headrace.building._options import Conversion
from headrace.errors import BuildError

if TYPE_CHECKING:
    from headrace.sources import Source

Answer = Sized | Written | Failed

# A build is often started from a tree or with a path that a fresh interpreter would not have.
_START = """
import sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
sys.path[:] = connection.recv()
from headrace.building._crew import work
work(connection)
"""


class Crew(Protocol):
    """Some workers, numbered from 0; each answers its messages in order."""

    size: int

    def send(self, worker: int, message: Task | Place) -> None: ...

    def receive(self) -> tuple[int, Answer]:
        """Wait for the next answer of any worker; BuildError if one has died."""
        ...

    def close(self) -> None:
        """Stop all workers and wait for them; what they had not written is lost."""
        ...


class ThreadCrew:
    """Workers in this process."""

    def __init__(self, size: int, conversion: Conversion, source: Source | None) -> None:
        self.size = size
        self._answers: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()
        self._inboxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(size)]
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(number, conversion, source), daemon=True)
            for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int, conversion: Conversion, source: Source | None) -> None:
        worker = Worker(conversion, source)
        while not isinstance(message := self._inboxes[number].get(), Stop) and not self._stopped.is_set():
            self._answers.put((number, worker.answer(message)))

    def send(self, worker: int, message: Task | Place) -> None:
        self._inboxes[worker].put(message)

    def receive(self) -> tuple[int, Answer]:
        return self._answers.get()

    def close(self) -> None:
        self._stopped.set()
        for inbox in self._inboxes:
            inbox.put(Stop())
        for thread in self._threads:
            thread.join()


class ProcessCrew:
    """Workers in processes of their own.

    Each has a thread here that sends to it. If the coordinator itself waited for a full pipe, and the worker for its
    own pipe to be read, both would wait for ever.
    """

    def __init__(self, size: int, conversion: Conversion, source: Source | None) -> None:
        self.size = size
        self._connections: list[Connection[Any, Any]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._outboxes: list[queue.SimpleQueue[Any]] = []
        self._senders: list[threading.Thread] = []
        try:
            for _ in range(size):
                self._start()
        except BaseException:
            self.close()
            raise
        for outbox in self._outboxes:
            outbox.put(sys.path)
            outbox.put((conversion, source))

    def _start(self) -> None:
        ours, theirs = Pipe()
        command = [sys.executable, "-c", _START, str(theirs.fileno())]
        with theirs:
            # stdin is closed to them: they must not take what is typed for the builder.
            # A group of their own: Ctrl-C is for the builder, which ends them.
            process = subprocess.Popen(  # noqa: S603
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
            )
        self._processes.append(process)
        self._connections.append(ours)
        self._outboxes.append(queue.SimpleQueue())
        self._senders.append(threading.Thread(target=_send_all, args=(ours, self._outboxes[-1]), daemon=True))
        self._senders[-1].start()

    def send(self, worker: int, message: Task | Place) -> None:
        self._outboxes[worker].put(message)

    def receive(self) -> tuple[int, Answer]:
        ready = wait(self._connections)[0]
        worker = self._connections.index(ready)  # type: ignore[arg-type]
        try:
            return worker, self._connections[worker].recv()
        except (EOFError, OSError):
            raise self._death(worker) from None

    def _death(self, worker: int) -> BuildError:
        code = self._processes[worker].wait()
        hint = "; the system may have run out of memory: use fewer workers" if code == -9 else ""
        what = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return BuildError(f"a worker process {what}{hint}; build again to go on with the shards that are finished")

    def close(self) -> None:
        # They have nothing that they could lose: what counts is written, and the rest is in temporary files.
        for process in self._processes:
            process.kill()
            process.wait()
        for outbox, sender, connection in zip(self._outboxes, self._senders, self._connections, strict=True):
            outbox.put(Stop())
            sender.join()
            connection.close()


def _send_all(connection: Connection[Any, Any], outbox: queue.SimpleQueue[Any]) -> None:
    while not isinstance(message := outbox.get(), Stop):
        try:
            connection.send(message)
        except OSError:  # the worker is gone, which `receive` finds out and explains
            return


def work(connection: Connection[Any, Any]) -> None:
    """Serve as a worker process until the builder closes the pipe, or is gone."""
    try:
        conversion, source = connection.recv()
        worker = Worker(conversion, source)
        while True:
            connection.send(worker.answer(connection.recv()))
    except (EOFError, OSError):
        return

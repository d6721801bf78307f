# SPDX-License-Identifier: Apache-2.0
"""Workers as threads or as processes, with one interface.

Worker processes start from an entry point of this package. So a script that calls `headrace.build` needs no `__main__`
guard, and a process with threads is never forked. A worker process exits when its pipe closes, whatever the reason.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

from headrace.building._chunk import ChunkEncoded, ChunkFailed, ChunkWritten, EncodeChunk, Worker, WriteChunk
from headrace.building._options import Conversion
from headrace.errors import BuildError

if TYPE_CHECKING:
    from headrace.sources import Source

Reply = ChunkEncoded | ChunkWritten | ChunkFailed

# Sets sys.path before it imports this package, which the new interpreter may not find by itself.
_START = """
import sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
sys.path[:] = connection.recv()
from headrace.building._workers import work
work(connection)
"""


class ThreadWorkers:
    """Workers as threads of this process, numbered from 0; each replies to its messages in order."""

    def __init__(self, size: int, conversion: Conversion, source: Source | None) -> None:
        self.size = size
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
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
        while (message := self._inboxes[number].get()) is not None and not self._stopped.is_set():
            self._replies.put(worker.reply(message))

    def send(self, worker: int, message: EncodeChunk | WriteChunk) -> None:
        self._inboxes[worker].put(message)

    def receive(self) -> Reply:
        """Wait for the next reply of any worker."""
        return self._replies.get()

    def close(self) -> None:
        """Stop all workers and wait for them; unwritten chunks are lost."""
        self._stopped.set()
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()


class ProcessWorkers:
    """Workers as processes; like `ThreadWorkers`, and `receive` raises BuildError if a worker has died.

    A thread per worker sends its messages. If the coordinator itself waited for a full pipe while the worker waited for
    its own pipe to be read, both would wait forever.
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
            # No stdin: a worker must not read what is typed for the builder.
            # A process group of its own: Ctrl-C goes to the builder, which stops the workers.
            process = subprocess.Popen(  # noqa: S603
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
            )
        self._processes.append(process)
        self._connections.append(ours)
        self._outboxes.append(queue.SimpleQueue())
        self._senders.append(threading.Thread(target=_send_all, args=(ours, self._outboxes[-1]), daemon=True))
        self._senders[-1].start()

    def send(self, worker: int, message: EncodeChunk | WriteChunk) -> None:
        self._outboxes[worker].put(message)

    def receive(self) -> Reply:
        ready: Any = wait(self._connections)[0]
        try:
            reply: Reply = ready.recv()
        except (EOFError, OSError):
            code = self._processes[self._connections.index(ready)].wait()
            hint = "; the system may be out of memory: use fewer workers" if code == -9 else ""
            how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
            raise BuildError(
                f"a worker process {how}{hint}; build again to continue from the finished shards"
            ) from None
        return reply

    def close(self) -> None:
        # Killing loses nothing: finished shards are on disk, and everything else is in temporary files.
        for process in self._processes:
            process.kill()
            process.wait()
        for outbox, sender, connection in zip(self._outboxes, self._senders, self._connections, strict=True):
            outbox.put(None)
            sender.join()
            connection.close()


Workers = ThreadWorkers | ProcessWorkers


def _send_all(connection: Connection[Any, Any], outbox: queue.SimpleQueue[Any]) -> None:
    while (message := outbox.get()) is not None:
        try:
            connection.send(message)
        except OSError:  # the worker is gone; `receive` reports it
            return


def work(connection: Connection[Any, Any]) -> None:
    """Run as a worker process until the builder closes the pipe or exits."""
    try:
        conversion, source = connection.recv()
        worker = Worker(conversion, source)
        while True:
            connection.send(worker.reply(connection.recv()))
    except (EOFError, OSError):
        return

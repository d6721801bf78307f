# SPDX-License-Identifier: Apache-2.0
"""One forged rank beside an honest one: the honest one is served, and nothing outside the exchange is touched."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.offload import forged
from tests.offload.exchanges import files_in, make_loader, name_of, stretch, take, wait_until

from headrace.errors import ExchangeError
from headrace.offload.exchange import HostExchange, Stretch
from headrace.offload.exchange._batch_file import pack_batch
from headrace.offload.exchange._documents import NO_WORKER, HostRequest
from headrace.offload.exchange._files import Refused, open_file, opened_folder, read_small_file
from headrace.offload.exchange._names import HOST_CELL, RECIPE, ROWS, WORKER_CELL, Origin
from headrace.offload.worker import OffloadWorker
from headrace.offload.worker._rank import PublishedBatches, ServedRank

STOP_SECONDS = 5.0


class Scene:
    """An exchange with an honest rank, a forged one, and a file outside that must stay as it is."""

    def __init__(self, folder: Path, recipe: dict) -> None:
        self.folder, self.recipe = folder, recipe
        self.rank = folder / "evil" / "rank-0"
        self.victim = folder.parent / "victim"
        self.victim.write_bytes(b"precious" * 1024)
        self.request = forged.plant(self.rank, recipe, stretches=(stretch(bottom=8),))

    @property
    def document(self) -> dict:
        return self.request.to_json()

    def host(self, content: bytes) -> None:
        forged.put(self.rank / HOST_CELL, content)

    def change_host(self, **members) -> None:
        self.host(forged.edited_cell(self.document, **members))

    def change_recipe(self, **members) -> None:
        forged.put(self.rank / RECIPE, json.dumps({**self.recipe, **members}).encode())

    def rows(self, content: bytes) -> None:
        forged.put(self.rank / ROWS, content)

    def move_to_link(self, path: Path) -> None:
        elsewhere = self.folder.parent / "elsewhere"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)


BIG = "9" * 3000
HOST_CELLS = {
    "deep": lambda s: s.host(forged.cell(forged.DEEP)),
    "bottomless": lambda s: s.host(forged.cell('{"version":1,"session":' + forged.BOTTOMLESS + "}")),
    "no JSON": lambda s: s.host(forged.cell("what?")),
    "no UTF-8": lambda s: s.host(forged.cell(b'{"a":"\xff\xfe"}')),
    "a list": lambda s: s.host(forged.cell("[1,2,3]")),
    "NaN": lambda s: s.host(forged.raw_member(s.document, "beat", "NaN")),
    "a number of 3000 digits": lambda s: s.host(forged.raw_member(s.document, "beat", BIG)),
    "infinity": lambda s: s.host(forged.raw_member(s.document, "beat", "1e999")),
    "a version of the future": lambda s: s.change_host(version=99),
    "a deep version": lambda s: s.change_host(version=[[[[]]]]),
    "no session": lambda s: s.change_host(session=...),
    "a long session": lambda s: s.change_host(session="x" * 3000),
    "a session that moves the cursor": lambda s: s.change_host(session="\x1b[2J\x1b[H"),
    "a session of numbers": lambda s: s.change_host(session=[1]),
    "a beat of text": lambda s: s.change_host(beat="1"),
    "a process that no machine has": lambda s: s.change_host(process=[s.request.process.machine, 2**40, 1]),
    "a negative process": lambda s: s.change_host(process=[s.request.process.machine, -1, 1]),
    "half a process": lambda s: s.change_host(process=["x"]),
    "many stretches": lambda s: s.change_host(stretches=[[0, 0, 40, 0, 10]] * 60),
    "no stretches": lambda s: s.change_host(stretches=None),
    "a stretch of four": lambda s: s.change_host(stretches=[[0, 0, 40, 0]]),
    "2**48 batches": lambda s: s.change_host(stretches=[[0, 0, 40, 0, 2**48]]),
    "more than 2**48 batches": lambda s: s.change_host(stretches=[[0, 0, 40, 0, 2**200]]),
    "negative batches": lambda s: s.change_host(stretches=[[0, 0, 40, -5, 5]]),
    "a stretch that ends before it starts": lambda s: s.change_host(stretches=[[0, 30, 10, 0, 2]]),
    "a stretch behind the end": lambda s: s.change_host(stretches=[[0, 0, 10**9, 0, 2]]),
    "an epoch that no key holds": lambda s: s.change_host(stretches=[[2**40, 0, 40, 0, 2]]),
    "closed maybe": lambda s: s.change_host(closed="maybe"),
    "empty": lambda s: s.host(b""),
    "cut": lambda s: s.host(forged.edited_cell(s.document)[:2000]),
    "a FIFO": lambda s: forged.fifo(s.rank / HOST_CELL),
    "a link": lambda s: forged.link(s.rank / HOST_CELL, s.victim),
    "a device": lambda s: forged.link(s.rank / HOST_CELL, "/dev/zero"),
    "a folder": lambda s: forged.directory(s.rank / HOST_CELL),
    "a terabyte": lambda s: forged.sparse(s.rank / HOST_CELL),
}
NEAR_CELLS = {
    "deep": lambda s: forged.put(s.rank / WORKER_CELL, forged.cell(forged.DEEP)),
    "a worker without members": lambda s: forged.put(s.rank / WORKER_CELL, forged.edited_cell(NO_WORKER, worker="w")),
    "a worker of 3000 letters": lambda s: forged.put(
        s.rank / WORKER_CELL, forged.edited_cell(NO_WORKER, worker="w" * 3000)
    ),
    "a FIFO": lambda s: forged.fifo(s.rank / WORKER_CELL),
    "a link": lambda s: forged.link(s.rank / WORKER_CELL, s.victim),
    "a hard link": lambda s: ((s.rank / WORKER_CELL).unlink(), os.link(s.victim, s.rank / WORKER_CELL)),
    "a folder": lambda s: forged.directory(s.rank / WORKER_CELL),
    "missing": lambda s: (s.rank / WORKER_CELL).unlink(),
}
RECIPES = {
    "deep": lambda s: forged.put(s.rank / RECIPE, forged.DEEP.encode() * 100),
    "a list": lambda s: forged.put(s.rank / RECIPE, b"[]"),
    "no JSON": lambda s: forged.put(s.rank / RECIPE, b"\x00\xff"),
    "a FIFO": lambda s: forged.fifo(s.rank / RECIPE),
    "a link": lambda s: forged.link(s.rank / RECIPE, s.victim),
    "a terabyte": lambda s: forged.sparse(s.rank / RECIPE),
    "missing": lambda s: (s.rank / RECIPE).unlink(),
    "nested views": lambda s: forged.put(
        s.rank / RECIPE,
        json.dumps({**s.recipe, "transforms": "@"})
        .replace('"@"', '[{"op":"views","n":2,"transforms":' * 400 + "[]" + "}]" * 400)
        .encode(),
    ),
    "batches of everything": lambda s: s.change_recipe(batch_size=2**31 - 1),
    "batches of text": lambda s: s.change_recipe(batch_size="4"),
    "a large world": lambda s: s.change_recipe(world_size=2**31 - 1),
    "a seed that no float holds": lambda s: s.change_recipe(min_area=10**400),
    "images of 4 gigapixels": lambda s: s.change_recipe(
        transforms=[{**s.recipe["transforms"][0], "op": "resize", "size": [65535, 65535]}]
    ),
    "unknown fields": lambda s: s.change_recipe(fields=["nothing"]),
    "transforms of numbers": lambda s: s.change_recipe(transforms=7),
    "another dataset": lambda s: s.change_recipe(fingerprint="ab" * 16),
}
ROW_FILES = {
    "a FIFO": lambda s: forged.fifo(s.rank / ROWS),
    "a link": lambda s: forged.link(s.rank / ROWS, s.victim),
    "a terabyte": lambda s: forged.sparse(s.rank / ROWS),
    "a claim of a terabyte": lambda s: s.rows(
        forged.npy("{'descr': '<i8', 'fortran_order': False, 'shape': (137438953472,), }")
    ),
    "objects": lambda s: s.rows(
        forged.npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cos\nsystem\n.")
    ),
    "floats": lambda s: s.rows(forged.rows_file([1.0, 2.0])),
    "two dimensions": lambda s: s.rows(forged.rows_file([[1, 2], [3, 4]])),
    "rows that are not there": lambda s: s.rows(forged.rows_file([2**60, -7])),
    "a deep header": lambda s: s.rows(forged.npy("(" * 110)),
    "no header": lambda s: s.rows(b"\x93NUM"),
    "a selection that the recipe has not": lambda s: s.rows(forged.rows_file([1, 2])),
}
PLACES = {
    "a batch that is a link": lambda s: forged.link(s.rank / "0-0-40-9.safetensors", s.victim),
    "a batch that is a FIFO": lambda s: forged.fifo(s.rank / "0-0-40-9.safetensors"),
    "a batch that is a folder": lambda s: (s.rank / "0-0-40-9.safetensors").mkdir(),
    "a rank that is a link": lambda s: s.move_to_link(s.rank),
    "a run that is a link": lambda s: s.move_to_link(s.rank.parent),
    "a rank that is a file": lambda s: (s.folder / "evil" / "rank-1").touch(),
    "thousands of ranks": lambda s: [(s.folder / "evil" / f"rank-{n}").mkdir() for n in range(1, 3000)],
}
TABLES = {"host": HOST_CELLS, "near": NEAR_CELLS, "recipe": RECIPES, "rows": ROW_FILES, "place": PLACES}
ATTACKS = {f"{table}: {name}": attack for table, attacks in TABLES.items() for name, attack in attacks.items()}
# What is wrong is said, but for what may be a write under way, and for what is not a rank at all.
UNSAID = (
    "empty",
    "cut",
    "missing",
    "place",
    "no JSON",
    "no UTF-8",
    "a list",
    "deep",
    "NaN",
    "a terabyte",
    "bottomless",
)


@contextmanager
def at_work(dataset: Path, folder: Path):
    """An offload worker in a thread, which must stop when it is asked to."""
    reports: list[str] = []
    worker = OffloadWorker(dataset, folder, report=reports.append)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield worker, reports
    finally:
        worker.stop()
        thread.join(STOP_SECONDS)
    assert raised == []
    assert not thread.is_alive()


@pytest.fixture
def loader(dataset):
    with make_loader(dataset) as loader:
        yield loader


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_honest_rank_is_served(dataset, folder, loader, attack, request):
    scene = Scene(folder, loader.recipe)
    attack(scene)
    with (
        HostExchange(folder, run="run", rank=0, recipe=loader.recipe) as exchange,
        at_work(dataset, folder) as (worker, reports),
    ):
        exchange.request([stretch(bottom=8)])
        for number in (9, 8):
            take(exchange, name_of(number))
        kind = request.node.callspec.id
        if kind.startswith(("host", "recipe", "rows")) and not any(word in kind for word in UNSAID):
            evil = str(scene.rank.relative_to(folder))
            said = lambda: any(evil in line for line in reports) or worker.progress().trouble  # noqa: E731
            wait_until(said)
        assert all(line.isprintable() for line in reports)
    assert scene.victim.read_bytes() == b"precious" * 1024
    assert (folder.parent / "elsewhere").is_dir() == ("that is a link" in kind and "batch" not in kind)


def test_all_of_them_at_once(dataset, folder, loader):
    """Sixty forged ranks take the worker's time, and not all of it."""
    for number, attack in enumerate(ATTACKS.values()):
        scene = Scene(folder, loader.recipe)
        attack(scene)
        if scene.rank.parent.is_symlink() or scene.rank.is_symlink():
            (folder.parent / "elsewhere").rename(folder.parent / f"elsewhere {number}")
        (folder / "evil").rename(folder / f"evil-{number}")
    with (
        HostExchange(folder, run="run", rank=0, recipe=loader.recipe) as exchange,
        at_work(dataset, folder) as (worker, _),
    ):
        exchange.request([stretch()])
        for number in reversed(range(10)):
            take(exchange, name_of(number))
            exchange.request([stretch(top=number)])
        assert worker.progress().ranks >= 1


def test_what_changes_under_the_worker_s_hands(dataset, folder, loader):
    """A rank that was honest when it was taken."""
    scene = Scene(folder, loader.recipe)
    with (
        HostExchange(folder, run="run", rank=0, recipe=loader.recipe) as exchange,
        at_work(dataset, folder) as (worker, _),
    ):
        wait_until(lambda: worker.progress().ranks == 2)
        for name, attack in (*HOST_CELLS.items(), *NEAR_CELLS.items()):
            if not name.startswith("a folder"):
                attack(scene)
                time.sleep(0.02)
        exchange.request([stretch()])
        for number in reversed(range(10)):
            take(exchange, name_of(number))
    assert scene.victim.read_bytes() == b"precious" * 1024


def test_an_error_that_nobody_foresaw_ends_one_rank(dataset, folder, loader, monkeypatch):
    scene = Scene(folder, loader.recipe)
    update = ServedRank.update

    def broken(self, ahead_bytes):
        if self.cells.folder == scene.rank:
            raise ZeroDivisionError("unforeseen")
        update(self, ahead_bytes)

    monkeypatch.setattr(ServedRank, "update", broken)
    with (
        HostExchange(folder, run="run", rank=0, recipe=loader.recipe) as exchange,
        at_work(dataset, folder) as (_, reports),
    ):
        exchange.request([stretch(bottom=8)])
        take(exchange, name_of(8))
        wait_until(lambda: any("ZeroDivisionError: unforeseen" in line for line in reports))


class TestFiles:
    """The one way in which files of an exchange are opened."""

    def test_only_regular_files_with_one_name_are_opened(self, tmp_path):
        (tmp_path / "file").write_bytes(b"content")
        forged.link(tmp_path / "link", tmp_path / "file")
        forged.fifo(tmp_path / "fifo")
        (tmp_path / "folder").mkdir()
        for name, kind in (("link", "symbolic link"), ("fifo", "FIFO"), ("folder", "folder")):
            with pytest.raises(Refused, match=kind):
                open_file(tmp_path / name)
        with pytest.raises(Refused, match="FIFO"):
            open_file(tmp_path / "fifo", os.O_WRONLY)
        assert read_small_file(tmp_path / "file", 7) == b"content"
        with pytest.raises(Refused, match="at most 6 bytes; it has 7"):
            read_small_file(tmp_path / "file", 6)
        os.link(tmp_path / "file", tmp_path / "second")
        assert read_small_file(tmp_path / "file", 7) == b"content"
        with pytest.raises(Refused, match="one name; it has 2"):
            open_file(tmp_path / "file", os.O_WRONLY)

    def test_folders_are_not_followed_below_the_exchange(self, tmp_path):
        real = tmp_path / "real"
        (real / "run" / "rank-0").mkdir(parents=True)
        forged.link(tmp_path / "exchange", real)
        with opened_folder(tmp_path / "exchange" / "run" / "rank-0"):
            pass  # the exchange itself may be a link
        (real / "run").rename(real / "moved")
        forged.link(real / "run", real / "moved")
        with pytest.raises(Refused, match="symbolic link"), opened_folder(real / "run" / "rank-0"):
            pass

    def test_nobody_else_can_read_or_write_what_is_made(self, folder, loader):
        umask = os.umask(0)
        try:
            forged.plant(folder / "run" / "rank-0", loader.recipe)
        finally:
            os.umask(umask)
        for path in (folder / "run", *(folder / "run").rglob("*")):
            assert path.stat().st_mode & 0o007 == 0

    @pytest.mark.parametrize("kind", ["link", "hard link", "FIFO"])
    def test_a_batch_is_never_written_into_what_lies_in_its_place(self, folder, tmp_path, loader, kind):
        rank, victim = folder / "run" / "rank-0", tmp_path / "victim"
        victim.write_bytes(b"precious")
        forged.plant(rank, loader.recipe)
        slots = PublishedBatches(rank, 0, "token")
        temporary = rank / ".batch.token.tmp"
        match kind:
            case "link":
                temporary.symlink_to(victim)
            case "hard link":
                os.link(victim, temporary)
            case _:
                os.mkfifo(temporary)
        slots.write(name_of(9), pack_batch(name_of(9), Origin("run", "s", "r"), {}))
        assert victim.read_bytes() == b"precious"
        assert (rank / "0-0-40-9.safetensors").stat().st_size == 4096

    def test_a_host_makes_nothing_behind_a_link(self, folder, tmp_path, loader):
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        forged.link(folder / "run", elsewhere)
        with pytest.raises(ExchangeError, match="symbolic link"):
            HostExchange(folder, run="run", rank=0, recipe=loader.recipe)
        (folder / "run").unlink()
        (folder / "run").mkdir()
        (elsewhere / "host").write_bytes(b"precious")
        forged.link(folder / "run" / "rank-0", elsewhere)
        with pytest.raises(ExchangeError, match="symbolic link"):
            HostExchange(folder, run="run", rank=0, recipe=loader.recipe)
        assert files_in(elsewhere) == ["host"]

    def test_a_planted_temporary_is_not_written_through(self, folder, tmp_path, loader):
        victim = tmp_path / "victim"
        victim.write_bytes(b"precious")
        with HostExchange(folder, run="run", rank=0, recipe=loader.recipe) as exchange:
            forged.link(folder / "run" / f".plan-0.json.{exchange.session}.tmp", victim)
            exchange.publish_plan(0, {"a": 1})
            assert exchange.read_plan(0) == {"a": 1}
        assert victim.read_bytes() == b"precious"


def test_a_wish_that_makes_sense_comes_back():
    request = HostRequest("abc", 7, forged.this_process(), (Stretch(0, 0, 40, 3, 10),), closed=True)

    assert HostRequest.from_json(json.loads(json.dumps(request.to_json()))) == request

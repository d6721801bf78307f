# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that a machine can keep; everything is read from the sources, nothing is imported."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headrace"

# Imports point downwards, or sideways where no ring comes of it.
LAYERS = (
    {"cli", "__main__"},
    {"integrations"},
    {"building", "offload", "planning", "profiling"},
    {"measuring"},
    {"loader"},
    {"formats", "records", "sources", "storage", "transforms"},
    {"codec", "kernels"},
    {"_core", "documents", "errors", "files", "system", "terminal", "units"},
)
CORE_USERS = {"codec", "formats", "kernels", "loader", "offload", "records", "transforms"}
FRAMEWORK_USERS = {
    "accelerate": {"integrations"},
    "torch": {"kernels", "loader", "storage"},
    "triton": {"kernels"},
    "ray": {"building", "offload"},
}
LINE_BUDGET = 500
MAX_FILES_IN_A_FOLDER = 16
NO_NAMES = {"common", "helper", "helpers", "misc", "util", "utils"}

MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = sorted(
    path
    for folder in ("src", "cpp", "tests", "spec", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".cpp", ".h", ".sh"}
)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def room_of(path: Path) -> str:
    """The room that a module lives in; the package's own `__init__` is the front door, which is no room."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file; names imported from the package are taken for modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{named(path)}:{node.lineno} imports relatively"
            for alias in node.names:
                yield f"{node.module}.{alias.name}" if node.module == "headrace" else str(node.module)


def imported_rooms(path: Path) -> Iterator[str]:
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] == "headrace":
            yield parts[1] if len(parts) > 1 else "headrace"


def layer_of(room: str) -> int:
    for layer, rooms in enumerate(LAYERS):
        if room in rooms:
            return layer
    pytest.fail(f"give the room {room} its place in LAYERS")


def test_imports_point_downwards():
    """A module imports from its own layer or those below it, and only the command line comes in by the front door."""
    for path in MODULES:
        room = room_of(path)
        for imported in imported_rooms(path) if room != "__init__" else ():
            if imported == "headrace":
                assert layer_of(room) == 0, f"{named(path)} imports the package itself"
            elif imported != "__version__":
                assert layer_of(room) <= layer_of(imported), f"{named(path)} must not import {imported}"


def test_rooms_do_not_import_each_other_in_a_ring():
    """Rooms of one layer may use each other, but not in a circle."""
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        room = room_of(path)
        graph.setdefault(room, set()).update(set(imported_rooms(path)) - {room, "headrace", "__version__"})
    del graph["__init__"]
    while graph:
        leaves = {room for room, imported in graph.items() if not imported & graph.keys()}
        assert leaves, f"a ring of imports among {sorted(graph)}"
        graph = {room: imported for room, imported in graph.items() if room not in leaves}


def test_the_extension_and_frameworks_stay_in_their_rooms():
    """`_core`, torch and their like are imported only where the design says so."""
    for path in MODULES:
        room = room_of(path)
        for module in imported_modules(path):
            if module.startswith("headrace._core"):
                assert room in CORE_USERS, f"{named(path)} must not speak to the extension"
            for framework, users in FRAMEWORK_USERS.items():
                if module == framework or module.startswith(f"{framework}."):
                    assert room in users, f"{named(path)} must not import {framework}"


def test_files_are_short():
    """No file is longer than the budget."""
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}

    assert {name: length for name, length in lengths.items() if length > LINE_BUDGET} == {}


def test_a_class_name_has_one_meaning():
    """No class name is defined twice in the package, private ones included."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(named(path))

    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_folders_are_not_crowded():
    """A folder with more than 16 files should be divided."""
    counts = Counter(named(path.parent) for path in MODULES)

    assert {folder: count for folder, count in counts.items() if count > MAX_FILES_IN_A_FOLDER} == {}


def private_imports(path: Path, room: str) -> Iterator[str]:
    """Yield every private module or name of another room that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, *parts = name.split(".")
            private = any(part.startswith("_") and not part.startswith("__") for part in parts[1:])
            if package == "headrace" and private and parts[0] not in {room, "_core"}:
                yield name


@pytest.mark.parametrize("folder", ["src/headrace", "tests", "benchmarks", "examples", "spec"])
def test_private_names_stay_in_their_room(folder):
    """A module or name with an underscore is imported only by its own room and by the tests of that room."""
    found = {
        named(path): names
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (names := list(private_imports(path, path.relative_to(ROOT / folder).parts[0].removesuffix(".py"))))
    }

    assert found == {}


def test_files_are_named_for_something():
    """None is called utils."""
    assert [named(path) for path in SOURCES if path.stem.strip("_") in NO_NAMES] == []


def test_files_begin_with_their_licence():
    """The SPDX line comes first, after a script's interpreter."""

    def first_line(path: Path) -> str:
        lines = path.read_text(encoding="utf-8").splitlines()[:2]
        return next((line for line in lines if not line.startswith("#!")), "")

    licence = re.compile(r"(#|//) SPDX-License-Identifier: Apache-2\.0")
    assert [named(path) for path in SOURCES if not licence.fullmatch(first_line(path))] == []


def test_modules_say_what_they_are_for():
    """Every module has a docstring whose first line is a whole sentence, or leads into one."""
    for path in MODULES:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert docstring, named(path)
        assert docstring.splitlines()[0].endswith((".", ":")), named(path)


def bound_names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """The names that a module defines itself, and those that it imports."""
    defined: set[str] = set()
    imported: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imported.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return {name for name in defined if not name.startswith("_")}, imported


def export_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions and modules: the order that ruff keeps too."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("path", [path for path in MODULES if "__all__" in path.read_text(encoding="utf-8")], ids=named)
def test_exports_are_sorted_and_exact(path):
    """`__all__` lists all public names that the module defines, nothing that it lacks, and in order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    exports = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__"
    )
    defined, imported = bound_names(tree)

    assert list(exports) == sorted(exports, key=export_order)
    assert defined - set(exports) == set()
    if not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body):
        assert set(exports) - defined - imported == set()


def test_rooms_have_a_front_door():
    """A room that others import from is a package with an `__init__` that says what it offers."""
    rooms = {path.parent for path in MODULES}

    assert {room.name for room in rooms if not (room / "__init__.py").exists()} == set()

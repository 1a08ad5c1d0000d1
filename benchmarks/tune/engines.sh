#!/bin/sh
# Tunes vLLM and llama.cpp on SmolLM2, 15 minutes each, on two thirds of a suite, then races the launch commands that were
# written on the rest, beside each engine's own default drafts and beside off. On a quiet machine, from the repository's root:
#
#     sh benchmarks/tune/engines.sh SUITE [vllm] [llama.cpp]
#
# Reports and races go to OUT/ENGINE (benchmarks/tune/engines), what only a resumed run needs and the prompts to RUNS.
# BUDGET (15m), CONCURRENCY (1,8), HEATS (10), NEW (64), VLLM_ARGS and LLAMA_ARGS can be set from outside: BUDGET=3m HEATS=2
# CONCURRENCY=1 for a short look.
set -eu

suite=$1
shift
: "${RUNS:=.runs/tune-engines}" "${PYTHON:=.venv/bin/python}" "${OUT:=benchmarks/tune/engines}" "${PEERS:=.peers}"
: "${BUDGET:=15m}" "${CONCURRENCY:=1,8}" "${HEATS:=10}" "${NEW:=64}" "${THREADS:=$(nproc)}"
: "${VLLM_ARGS:=}" "${LLAMA_ARGS:=}"

# ENGINE MODEL PROGRAM ARGS, then flags for tune
tuned() {
	engine=$1 model=$2 program=$3 more=$4
	shift 4
	mkdir -p "$RUNS/$engine" "$OUT/$engine"
	"$PYTHON" -m forerun tune "$model" --engine "$engine" --program "$program" --engine-args="$more" --prompts "$suite" \
		--budget "$BUDGET" --concurrency "$CONCURRENCY" --max-new-tokens "$NEW" --threads "$THREADS" \
		-o "$RUNS/$engine/system.json" --report "$OUT/$engine" "$@"
	# the suite's prompts are not ours to spread
	mv "$OUT/$engine/held_out.jsonl" "$RUNS/$engine/"
	cp "$RUNS/$engine/system.json" "$RUNS/$engine/system.json.launch.sh" "$OUT/$engine/"
	"$PYTHON" benchmarks/tune/engines.py "$RUNS/$engine/system.json" "$RUNS/$engine/held_out.jsonl" \
		"$OUT/$engine/race.json" --heats "$HEATS" --new "$NEW"
}

for engine in "${@:-both}"; do
	case $engine in vllm | both)
		tuned vllm smollm2 "$PEERS/vllm/bin/vllm" "$VLLM_ARGS" --dtype bfloat16
		;;
	esac
	case $engine in llama.cpp | both)
		tuned llama.cpp "$PEERS/models/smollm2-q4_0.gguf" "$PEERS/llama-server/llama-server" "$LLAMA_ARGS"
		;;
	esac
done

#!/bin/sh
# Tunes SmolLM2 (10 minutes) and Qwen2.5-Coder-1.5B (30 minutes) on two thirds of a suite, then races what won on the rest,
# beside plain decoding and beside transformers' defaults for the same methods. On a quiet machine, from the repository's root:
#
#     sh benchmarks/tune/run.sh SUITE [smollm2] [qwen]
#
# Reports and races go to benchmarks/tune/smollm2 and qwen. What only a resumed run needs, and the prompts themselves, stay
# in RUNS (.runs/tune). OUT, BUDGET, QWEN_BUDGET and PER_CATEGORY can be set from outside. Models made of parts by
# `make bench-qwen` are looked for in MODELS (.peers/models).
set -eu

suite=$1
shift
: "${RUNS:=.runs/tune}" "${MODELS:=.peers/models}" "${FORERUN:=.venv/bin/forerun}" "${OUT:=benchmarks/tune}"
: "${BUDGET:=10m}" "${QWEN_BUDGET:=30m}"
# fewer prompts in the race of SmolLM2 if given
race=${PER_CATEGORY:+--per-category $PER_CATEGORY}
threads=$(nproc)

# NAME MODEL BUDGET, then flags for tune
tuned() {
	name=$1 model=$2 budget=$3
	shift 3
	mkdir -p "$RUNS/$name" "$OUT/$name"
	"$FORERUN" tune "$model" --prompts "$suite" --budget "$budget" --weights int4 "$@" \
		-o "$RUNS/$name/system.json" --report "$OUT/$name"
	# the suite's prompts are not ours to spread
	mv "$OUT/$name/held_out.jsonl" "$RUNS/$name/"
	cp "$RUNS/$name/system.json" "$OUT/$name/"
}

# NAME MODEL FILE, then flags for bench: the tuned system on prompts that it was not tuned on
raced() {
	name=$1 model=$2 file=$3
	shift 3
	"$FORERUN" bench "$model" --suite "$RUNS/$name/held_out.jsonl" --system "$RUNS/$name/system.json" --threads "$threads" \
		--weights int4 --json "$OUT/$name/$file.json" "$@"
}

for model in "${@:-both}"; do
	case $model in smollm2 | both)
		tuned smollm2 smollm2 "$BUDGET"
		# shellcheck disable=SC2086
		raced smollm2 smollm2 held_out --methods default,lookup --max-new-tokens 64 $race
		# transformers reads the same weights in bfloat16; it is slow here, hence a few prompts
		raced smollm2 smollm2 transformers --methods plain --peers transformers:lookup --per-category 3 --max-new-tokens 64
		;;
	esac
	case $model in qwen | both)
		qwen=$MODELS/qwen2.5-coder-1.5b.gguf
		tuned qwen "$qwen" "$QWEN_BUDGET" --draft-model "$MODELS/qwen2.5-coder-0.5b.gguf"
		raced qwen "$qwen" held_out --methods default,lookup --per-category 4 --max-new-tokens 64
		raced qwen "$qwen" transformers --methods plain --peers transformers:lookup --per-category 1 --max-new-tokens 48
		;;
	esac
done

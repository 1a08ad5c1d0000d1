#!/bin/sh
# Races at native costs, each by one command, on a quiet machine, from the repository's root:
#
#     sh benchmarks/native/races.sh SUITE [RACE ...]
#
# RACE (minutes on two cores, as they stand below; all of the first group if none is named):
#   plain (2)        int4, plain and by default, with llama.cpp on Q4_1 and Q4_0, after short prompts and after 800 tokens
#   default (8)      int4 on SUITE, by default and with single drafters, with llama.cpp and llama-server, plain and drafting
#   texts (4)        int4 by default on all of SUITE: is every text plain decoding's
#   bf16 (5)         bfloat16, plain, by default and with a carved draft of itself, with vLLM, plain and with n-grams
#   kinds (7)        prompts that answers repeat, agents' turns and open questions: each drafter that needs no training, in FORMS
#   drafters (5)     each drafter alone and by default on SUITE, 64 tokens, in FORMS: int4 (4 prompts a category), bfloat16 (2) and
#                    float32 (1), these two with a carved int4 draft of themselves too
#   forwards (3)     milliseconds by rows, native, torch and llama.cpp
#   batches (4)      1, 8 and 16 prompts at once, native, torch and vLLM
#   identical (8)    is every text plain decoding's, with every kind of draft, alone and in batches, in every form
# and, with `make bench-qwen`'s models:
#   qwen (2)         int4, plain and by default, with llama.cpp on Q4_0
#   qwen-pair (2)    the 1.5B with the 0.5B as its draft
#   qwen-forwards (4)
# and vllm-threads (2): which setting of vLLM's threads is its best on this machine.
# What measured costs feed on, shorter than in its own folder, to whose result files it goes below ROOT:
#   design (4)       what `forerun design` predicts beside the real loop, int4 and bfloat16
#   governor (2)     a drafter that is nearly always wrong; ADAPTER is an exit adapter, an untrained one if not given
#   tune (5)         `forerun tune` for BUDGET, and the tuned system on prompts that it was not tuned on
#   policies (8)     every rule on the target's first layers as a draft, replayed and timed
#   graphs (5)       graph, tree and chain on Qwen's pair
#
# PER_CATEGORY and NEW make a race shorter; METHODS names others than default, bf16, kinds and drafters have. FORM is for forerun's flags, such
# as FORM="--activations 8"; OUT is where results go.
set -eu

suite=$1
shift
fewer=${NEW:-64}
: "${PYTHON:=.venv/bin/python}" "${PEERS:=.peers}" "${OUT:=benchmarks/native}" "${WORK:=.runs/native}" "${FORM:=}"
: "${THREADS:=$(nproc)}" "${NEW:=128}" "${ROOT:=benchmarks}" "${BUDGET:=3m}" "${ADAPTER:=}"
forerun=${PYTHON%python*}forerun
models=$PEERS/models
methods=benchmarks/methods
untrained=$methods/lookup-2.json,$methods/lookup-3.json,$methods/lookup-5.json,$methods/recycle.json
# each race begins with nothing learnt
export FORERUN_LEARNED="${FORERUN_LEARNED:-off}"
llama="--peer-python llama.cpp=$PEERS/llamacpp/bin/python"
server="--peer-setting llama-server.program=$PEERS/llama-server/llama-server"
vllm="--peer-python vllm=$PEERS/vllm/bin/python"
# the best of what vllm-threads tries, on this machine
nobind="--peer-setting vllm.environment={\"VLLM_CPU_OMP_THREADS_BIND\":\"nobind\"}"
small="--peer-model q4_0=$models/smollm2-q4_0.gguf"
qwen=$models/qwen2.5-coder-1.5b.gguf
mkdir -p "$OUT" "$WORK" "$ROOT/design" "$ROOT/policies" "$ROOT/tune" "$ROOT/graphs"

# MODEL FILE, then flags
bench() {
	model=$1 file=$2
	shift 2
	# shellcheck disable=SC2086
	"$PYTHON" -m forerun bench "$model" --threads "$THREADS" --max-new-tokens "$NEW" --json "$OUT/$file.json" $FORM "$@"
}

# RESULT, then flags: a race in each of FORMS, to RESULT-FORM.json
in_forms() {
	result=$1
	shift
	for form in $(echo "$forms" | tr , ' '); do
		case $form in
		int4 | int8) opened="--weights $form" ;;
		*) opened="--dtype $form" ;;
		esac
		# shellcheck disable=SC2086
		bench smollm2 "$result-$form" $opened "$@"
	done
}

lengths() {
	[ -f "$WORK/lengths.jsonl" ] || "$PYTHON" benchmarks/native/lengths.py smollm2 "$suite" "$WORK/lengths.jsonl"
}

# shellcheck disable=SC2086
race() {
	case $1 in
	plain)
		lengths
		bench smollm2 plain --suite "$WORK/lengths.jsonl" --per-category "${PER_CATEGORY:-8}" --weights int4 \
			--methods default --peers llama.cpp:plain,llama.cpp@q4_0:plain,llama-server@q4_0:plain $llama $server $small
		;;
	default)
		bench smollm2 default --suite "$suite" --per-category "${PER_CATEGORY:-6}" --weights int4 \
			--methods "${METHODS:-default,$methods/lookup-3.json,$methods/suffix-cost.json,$methods/ngrams.json}" \
			--peers llama.cpp:plain,llama.cpp@q4_0:plain,llama-server@q4_0:plain+ngram-simple+default $llama $server $small
		;;
	texts)
		bench smollm2 texts --suite "$suite" --per-category "${PER_CATEGORY:-40}" --weights int4 --methods default
		;;
	bf16)
		bench smollm2 bf16 --suite "$suite" --per-category "${PER_CATEGORY:-3}" --dtype bfloat16 \
			--methods "${METHODS:-default,$methods/carved-int4.json,$methods/guessed-int4.json}" \
			--peers vllm:ngram+ngram-3 $vllm $nobind
		;;
	kinds)
		forms=${FORMS:-int4}
		in_forms kinds --suite benchmarks/kinds/kinds.jsonl --all-turns --per-category "${PER_CATEGORY:-20}" \
			--methods "${METHODS:-default,$methods/suffix.json,$untrained,$methods/suffix-recycle.json}"
		;;
	drafters)
		for forms in $(echo "${FORMS:-int4,bfloat16,float32}" | tr , ' '); do
			case $forms in
			int4 | int8) carved="" count=4 ;;
			bfloat16) carved=,$methods/carved-int4.json count=2 ;;
			*) carved=,$methods/carved-int4.json count=1 ;;
			esac
			in_forms drafters --suite "$suite" --per-category "${PER_CATEGORY:-$count}" --max-new-tokens "$fewer" \
				--methods "${METHODS:-default,$methods/suffix.json,$methods/lookup-3.json,$methods/recycle.json,$methods/ngrams.json,$methods/draft.json$carved}"
		done
		;;
	vllm-threads)
		for bind in "0-$((THREADS - 1))" nobind auto; do
			echo "vLLM's threads: $bind"
			bench smollm2 "vllm-threads-$bind" --suite "$suite" --categories mt_bench,qa --per-category "${PER_CATEGORY:-2}" \
				--dtype bfloat16 --methods plain --peers vllm:plain $vllm \
				--peer-setting "vllm.environment={\"VLLM_CPU_OMP_THREADS_BIND\":\"$bind\"}"
		done
		;;
	forwards)
		"$PYTHON" benchmarks/native/forwards.py smollm2 "$OUT/forwards-smollm2.json" --threads "$THREADS" \
			--forms "${FORMS:-int4/16,int4/8,bfloat16}" --blocks "${BLOCKS:-8}" \
			--llama "q4_0=$models/smollm2-q4_0.gguf" --llama-python "$PEERS/llamacpp/bin/python"
		;;
	batches)
		"$PYTHON" benchmarks/native/batches.py smollm2 "$suite" "$OUT/batches.json" --threads "$THREADS" \
			--vllm-python "$PEERS/vllm/bin/python" --repeats "${REPEATS:-3}"
		;;
	identical)
		"$PYTHON" benchmarks/native/identical.py smollm2 "$suite" "$OUT/identical.json" --threads "$THREADS" \
			--forms "${FORMS:-int4/16,int8,bfloat16}" --count "${COUNT:-40}" --work "$WORK"
		;;
	qwen)
		bench "$qwen" qwen --suite "$suite" --categories mt_bench,qa,math_reasoning --per-category "${PER_CATEGORY:-2}" \
			--weights int4 --methods default --peers llama.cpp:plain,llama.cpp@q4_0:plain $llama \
			--peer-model "q4_0=$models/qwen2.5-coder-1.5b-q4_0.gguf"
		;;
	qwen-pair)
		echo "{\"drafter\": {\"name\": \"draft_model\", \"model\": \"$(realpath "$models/qwen2.5-coder-0.5b.gguf")\"}," \
			'"policy": {"name": "fixed", "k": 3}}' > "$WORK/pair.json"
		bench "$qwen" qwen-pair --suite "$suite" --categories mt_bench,qa,math_reasoning --per-category "${PER_CATEGORY:-2}" \
			--weights int4 --methods "$WORK/pair.json,default" --predict
		;;
	qwen-forwards)
		"$PYTHON" benchmarks/native/forwards.py "$qwen" "$OUT/forwards-qwen.json" --threads "$THREADS" \
			--forms "${FORMS:-int4/16,int4/8,bfloat16}" --blocks "${BLOCKS:-3}" --repeats 3 \
			--llama "q4_0=$models/qwen2.5-coder-1.5b-q4_0.gguf" --llama-python "$PEERS/llamacpp/bin/python"
		;;
	design)
		for form in "--weights int4" "--dtype bfloat16"; do
			"$PYTHON" benchmarks/design/validate.py "$ROOT/design/validate.json" smollm2 $form \
				--repeats "${REPEATS:-2}" --new "${VALIDATED:-48}"
		done
		;;
	governor)
		[ -n "$ADAPTER" ] || "$PYTHON" benchmarks/native/identical.py smollm2 "$suite" "$WORK/made.json" \
			--forms bfloat16 --count 1 --new 2 --work "$WORK"
		"$PYTHON" benchmarks/policies/governor.py "$ROOT/policies/governor.json" "$suite" "${ADAPTER:-$WORK/identical-adapter}" \
			--per-category 2 --limit "${LIMIT:-8}" --repeats "${REPEATS:-3}" --max-new-tokens 64
		;;
	tune)
		RUNS=$WORK/tune BUDGET=$BUDGET FORERUN=$forerun OUT=$ROOT/tune PER_CATEGORY=${PER_CATEGORY:-3} \
			sh benchmarks/tune/run.sh "$suite" smollm2
		;;
	policies)
		[ -f "$WORK/prompts.jsonl" ] || "$PYTHON" -m forerun train prompts smollm2 --dtype bfloat16 --exclude "$suite" \
			-o "$WORK/prompts.jsonl" --count 60 --seed 3
		FORERUN=$forerun OUT=$ROOT/policies PER_CATEGORY=${PER_CATEGORY:-1} ANSWERS=${ANSWERS:-40} NEW=48 TIMED=4 REPEATS=2 \
			EPOCHS=3 COST_PROMPTS=2 bash benchmarks/policies/run.sh "$suite" "$WORK/prompts.jsonl" "$WORK/policies" truncated
		;;
	graphs)
		"$PYTHON" benchmarks/graphs/compare.py "$ROOT/graphs/qwen.json" "$qwen" "$suite" --of draft_model \
			--model "$models/qwen2.5-coder-0.5b.gguf" --weights int4 --new "${GRAPHED:-32}" --every "${EVERY:-4}"
		;;
	*)
		echo "unknown race $1; this file's first lines name them" >&2
		exit 2
		;;
	esac
}

[ $# -gt 0 ] || set -- plain default texts bf16 forwards batches identical
for name in "$@"; do
	echo "== $name, $(date +%T), load $(cut -d ' ' -f 1-3 /proc/loadavg)"
	begun=$(date +%s)
	race "$name"
	echo "== $name took $(($(date +%s) - begun)) s"
done
echo "== done, $(date +%T)"

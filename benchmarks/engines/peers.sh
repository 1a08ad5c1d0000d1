#!/bin/sh
# Other engines as their users run them, each row with its version, file, format and settings, alone and several at once:
#
#     sh benchmarks/engines/peers.sh SUITE [RACE ...]
#
# RACE (minutes on two quiet cores; all if none is named):
#   small (1)  int4, with llama-server on Q4_0: plain, n-grams, forerun's exported draft, and both
#   wide (4)   bfloat16, with vLLM (plain, n-grams, the exported draft), OpenVINO GenAI on an F16 file (plain, prompt lookup) and
#              transformers (plain, prompt lookup, the exported draft as its assistant); only ENGINES, if given
#
# CONCURRENCY, CATEGORIES, PER_CATEGORY and NEW make them longer or shorter. What an engine lacks here is told in one sentence.
set -eu

suite=$1
shift
: "${PYTHON:=.venv/bin/python}" "${PEERS:=.peers}" "${OUT:=benchmarks/engines}" "${WORK:=.runs/peers}" "${THREADS:=$(nproc)}"
: "${CONCURRENCY:=1,8}" "${PER_CATEGORY:=2}" "${NEW:=48}" "${CATEGORIES=mt_bench,qa,math_reasoning,translation}"
: "${ENGINES:=vllm:ngram-3+draft-model,openvino@f16:lookup,transformers:lookup+assistant}" "${VLLM_ENGINE:={\}}"
models=$PEERS/models
# each race begins with nothing learnt
export FORERUN_LEARNED="${FORERUN_LEARNED:-off}"
mkdir -p "$OUT" "$WORK"

# OUTPUT, then flags
export_draft() {
	output=$1
	shift
	[ -e "$output" ] || "$PYTHON" -m forerun export draft smollm2 --draft smollm2-draft -o "$output" "$@"
}

# RESULT, then flags
bench() {
	result=$1
	shift
	"$PYTHON" -m forerun bench smollm2 --suite "$suite" --categories "$CATEGORIES" --per-category "$PER_CATEGORY" \
		--max-new-tokens "$NEW" --threads "$THREADS" --concurrency "$CONCURRENCY" --json "$OUT/$result.json" "$@"
}

# PEER, then a setting: only where it takes part
of() {
	case $ENGINES in
	*$1*) echo "$2" "$3" ;;
	esac
}

# shellcheck disable=SC2046
race() {
	case $1 in
	small)
		export_draft "$WORK/draft.gguf" --gguf-target "$models/smollm2-q4_0.gguf"
		bench "${RESULT:-peers-small}" --weights int4 --peers llama-server@q4_0:ngram-simple+draft-model+list \
			--peer-model "q4_0=$models/smollm2-q4_0.gguf" --peer-draft "gguf=$WORK/draft.gguf" \
			--peer-setting "llama-server.program=$PEERS/llama-server/llama-server"
		;;
	wide)
		export_draft "$WORK/draft"
		bench "${RESULT:-peers-wide}" --dtype bfloat16 --peers "$ENGINES" --peer-draft "hf=$WORK/draft" \
			$(of openvino --peer-model "f16=$models/smollm2-f16.gguf") \
			$(of openvino --peer-python "openvino=$PEERS/openvino/bin/python") \
			$(of vllm --peer-python "vllm=$PEERS/vllm/bin/python") \
			$(of vllm --peer-setting 'vllm.environment={"VLLM_CPU_OMP_THREADS_BIND":"nobind"}') \
			$(of vllm --peer-setting "vllm.engine=$VLLM_ENGINE")
		;;
	*)
		echo "unknown race $1; this file's first lines name them" >&2
		exit 2
		;;
	esac
}

[ $# -gt 0 ] || set -- small wide
for name in "$@"; do
	echo "== $name, $(date +%T), load $(cut -d ' ' -f 1-3 /proc/loadavg)"
	race "$name"
done
echo "== done, $(date +%T)"

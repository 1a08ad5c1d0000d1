#!/usr/bin/env bash
# Traces, trained heads and the comparison of all policies for three pairs; run on a quiet machine from the repository's root.
#
#   benchmarks/policies/run.sh SUITE PROMPTS WORK [PAIR ...]
#
# SUITE: prompts in Spec-Bench's form, the judges; PROMPTS: other prompts (forerun train prompts), whose answers heads learn
# from; WORK: a folder for traces and weights, where a killed run goes on; PAIR: adapter, truncated, qwen (all if not given).
# Reports go to benchmarks/policies/PAIR. ADAPTER, PEERS, EXIT and the sizes below can be set from outside.
set -euo pipefail

SUITE=$1 PROMPTS=$2 WORK=$3
shift 3
PAIRS=("$@")
[ ${#PAIRS[@]} -gt 0 ] || PAIRS=(adapter truncated qwen)

FORERUN=${FORERUN:-.venv/bin/forerun}
ADAPTER=${ADAPTER:-.runs/adapter-30}
PEERS=${PEERS:-.peers/models}
EXIT=${EXIT:-24}
OUT=${OUT:-benchmarks/policies}
PER_CATEGORY=${PER_CATEGORY:-2}
NEW=${NEW:-64}
COST_PROMPTS=${COST_PROMPTS:-3}
ANSWERS=${ANSWERS:-200}
QWEN_ANSWERS=${QWEN_ANSWERS:-40}
QWEN_PER_CATEGORY=${QWEN_PER_CATEGORY:-1}
TIMED=${TIMED:-8}
REPEATS=${REPEATS:-3}
EPOCHS=${EPOCHS:-10}

mkdir -p "$WORK" "$OUT"

# NAME PER_CATEGORY ANSWERS MODEL FORMAT... -- METHOD...
pair() {
    local name=$1 each=$2 count=$3 model=$4
    shift 4
    local format=() method=()
    while [ "$1" != -- ]; do format+=("$1"); shift; done
    shift
    method=("$@")
    local here=$WORK/$name
    mkdir -p "$here"
    local taken=(--prompts "$SUITE" --per-category "$each" --max-prompt 300 --max-new-tokens "$NEW")
    echo "== $name: traces, $(date +%T)"
    "$FORERUN" trace "$model" "${format[@]}" "${method[@]}" "${taken[@]}" --hidden --cost-prompts "$COST_PROMPTS" -o "$here/dev.jsonl"
    "$FORERUN" trace "$model" "${format[@]}" "${method[@]}" "${taken[@]}" --skip "$each" --hidden \
        --cost-prompts "$COST_PROMPTS" -o "$here/test.jsonl"
    echo "== $name: heads, $(date +%T)"
    head -n "$count" "$PROMPTS" > "$here/prompts.jsonl"
    "$FORERUN" train answers "$model" "$here/prompts.jsonl" "${format[@]}" -o "$here/answers.jsonl" --exclude "$SUITE" \
        --max-new-tokens 96 --max-prompt 256 --temperature 1
    [ -d "$here/head" ] || "$FORERUN" train acceptance-head "$model" "${format[@]}" "${method[@]}" \
        --data "$here/answers.jsonl" --epochs "$EPOCHS" -o "$here/head"
    [ -d "$here/disco" ] || "$FORERUN" train disco "$here/dev.jsonl" -o "$here/disco"
    echo "== $name: comparison, $(date +%T)"
    "$FORERUN" policies compare "$here/test.jsonl" --choose-on "$here/dev.jsonl" "${format[@]}" --measure "$model" \
        --timed-prompts "$TIMED" --repeats "$REPEATS" --output "$OUT/$name" \
        --rule cost --rule governor --rule heuristic --rule roc \
        --rule "adaptive alpha=0.5|0.7|0.9" --rule "threshold confidence=0.2|0.4|0.6|0.8" \
        --rule "confidence_product product=0.1|0.3|0.5" --rule "entropy acceptance=0.2|0.4|0.6" \
        --rule "acceptance_head head=$here/head h=0.3|0.5|0.7|0.9" --rule "disco classifier=$here/disco"
    echo "== $name: done, $(date +%T)"
}

for name in "${PAIRS[@]}"; do
    case $name in
    adapter)
        pair adapter "$PER_CATEGORY" "$ANSWERS" smollm2 --dtype bfloat16 -- \
            --drafter exit_adapter --adapter "$ADAPTER" --vocabulary 4096
        ;;
    truncated)
        [ -d "$WORK/draft-$EXIT" ] || "$FORERUN" export draft smollm2 --exit-layer "$EXIT" -o "$WORK/draft-$EXIT"
        pair truncated "$PER_CATEGORY" "$ANSWERS" smollm2 --dtype bfloat16 -- \
            --drafter draft_model --drafter-model "$WORK/draft-$EXIT"
        ;;
    qwen)
        pair qwen "$QWEN_PER_CATEGORY" "$QWEN_ANSWERS" "$PEERS/qwen2.5-coder-1.5b.gguf" --weights int4 -- \
            --drafter draft_model --drafter-model "$PEERS/qwen2.5-coder-0.5b.gguf"
        ;;
    *)
        echo "unknown pair $name: adapter, truncated or qwen" >&2
        exit 2
        ;;
    esac
done

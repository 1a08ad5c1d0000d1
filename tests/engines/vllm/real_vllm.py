"""Runs in a Python with vLLM: answers with the proposer and without, draws, and a crowd of requests. Tells it in JSON.

python real_vllm.py MODEL OUT.json
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

FORERUN = {"drafter": {"name": "lookup"}, "policy": {"name": "fixed"}}
VOCABULARY = 97
HEAT = 0.8  # no whole number: a temperature that was lost or rounded shows in the law
EVERYTHING = [*range(30, VOCABULARY), *range(3, 30)]  # each token with the one after it, which the model likes best


class Nothing:
    """Drafts nothing: vLLM decodes plainly."""

    def propose(self, sampled: Any, *given: Any, **named: Any) -> list[list[int]]:
        return [[] for _ in sampled]


class Counted:
    def __init__(self, proposer: Any) -> None:
        self.proposer = proposer
        self.drafted = self.accepted = self.most = 0

    def propose(self, sampled: Any, *given: Any, **named: Any) -> list[list[int]]:
        drafts: list[list[int]] = self.proposer.propose(sampled, *given, **named)
        self.drafted += sum(map(len, drafts))
        self.accepted += sum(len(new) - 1 for new in sampled if len(new))
        self.most = max(self.most, self.proposer.in_flight)
        return drafts


def opened(model: str) -> Any:
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_LOGGING_LEVEL="WARNING",
    )
    import vllm

    return vllm.LLM(
        model=model,
        dtype="float32",
        max_model_len=256,
        max_num_seqs=16,
        enforce_eager=True,
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
        num_gpu_blocks_override=8,  # few: some requests are preempted
        speculative_config={
            "method": "custom_class",
            "model": "forerun.engines.vllm.Proposer",
            "num_speculative_tokens": 8,
        },
        additional_config={"forerun": FORERUN},
    )


def sampling(new: int, **given: Any) -> Any:
    import vllm

    return vllm.SamplingParams(
        **{"temperature": 0.0, "max_tokens": new, "ignore_eos": True, "detokenize": False, **given}
    )


def answers(llm: Any, prompts: list[list[int]], given: Any) -> list[list[int]]:
    """given: how to sample, for all or for each."""
    found = llm.generate([{"prompt_token_ids": ids} for ids in prompts], given, use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in found]


def crowd(llm: Any, random: Random) -> dict[str, int]:
    """200 requests that come and go, some of which are aborted."""
    engine = llm.llm_engine
    scheduler = engine.engine_core.engine_core.scheduler
    preempted, preempt = 0, scheduler._preempt_request

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal preempted
        preempted += 1
        return preempt(*given, **named)

    scheduler._preempt_request = counted
    waiting = [str(10_000 + number) for number in range(200)]
    running: dict[str, str] = {}
    finished = aborted = 0
    while waiting or engine.has_unfinished_requests():
        for _ in range(random.choice([0, 0, 1, 4])):
            if waiting:
                name = waiting.pop()
                ids = [random.randrange(3, VOCABULARY) for _ in range(random.choice([3, 20, 90]))]
                running[
                    engine.add_request(name, {"prompt_token_ids": ids}, sampling(random.choice([1, 8, 60]))) or name
                ] = name
        if running and random.random() < 0.05:
            engine.abort_request([running.pop(random.choice(list(running)))])
            aborted += 1
        for output in engine.step():
            if output.finished:
                finished += 1
                running = {key: name for key, name in running.items() if not output.request_id.startswith(name)}
    return {"finished": finished, "aborted": aborted, "preempted": preempted}


def main(model: str, out: Path) -> None:
    llm = opened(model)
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    proposer = Counted(runner.drafter)
    random = Random(3)
    prompts = [[random.randrange(3, VOCABULARY) for _ in range(random.choice([3, 20, 60]))] for _ in range(40)]
    prompts[:4] = [EVERYTHING[place:] + EVERYTHING[:place] for place in range(0, 40, 10)]
    runner.drafter = Nothing()
    plain = answers(llm, prompts, sampling(48))
    runner.drafter = proposer
    drafted = answers(llm, prompts, sampling(48))
    greedy = {"drafted": proposer.drafted, "accepted": proposer.accepted}
    turns = [[sampling(3, temperature=HEAT) for _ in range(150)] for _ in range(7)]
    turns.append([sampling(3, temperature=HEAT, seed=seed) for seed in range(150)])
    draws = [one for given in turns for one in answers(llm, [EVERYTHING] * 150, given)]
    told = {
        "plain": plain,
        "with_drafts": drafted,
        "greedy": greedy,
        "draws": draws,
        "draws_drafted": proposer.drafted - greedy["drafted"],
        "draws_accepted": proposer.accepted - greedy["accepted"],
        "crowd": crowd(llm, random),
        "most_in_flight": proposer.most,
        "in_flight": proposer.proposer.in_flight,
        "failed": proposer.proposer._failed,
    }
    out.write_text(json.dumps(told))


if __name__ == "__main__":
    del sys.path[0]  # this folder, which is named as the package is
    main(sys.argv[1], Path(sys.argv[2]))

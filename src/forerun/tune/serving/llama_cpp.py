"""llama-server's knobs: its lists of --spec-type, with their sizes and lengths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from ...bench.workers.llama_server import GREEDY, complaint_in
from ...errors import UnsupportedOption
from ...models.files.locate import locate
from .knobs import Knobs, Wanted
from .programs import said_by
from .serving_engine import Launch, ServingEngine

SIMPLE, MAP, MOD, DRAFT, LIST = METHODS = ("ngram-simple", "ngram-map-k", "ngram-mod", "draft-model", "list")
NEEDED = "--spec-draft-n-max"
SIZES = ((3, 3), (3, 8), (2, 3), (4, 16), (12, 48))  # n that must match, m that are drafted; the last is its default
POOLS = ((24, 48, 64), (12, 8, 24), (8, 4, 12))  # match, least and most; the first is --spec-default
LENGTHS, SURE, LEAST = (4, 8, 2, 16), (0.5, 0.0, 0.8), (0, 2)
PLACES = {SIMPLE: 1, MAP: 2, MOD: 3, DRAFT: 4, LIST: 5}


@final
class LlamaCpp(ServingEngine):
    name = "llama.cpp"
    form = "gguf"
    program = "llama-server"
    methods = METHODS
    most_open = 4

    def version(self, program: str) -> str:
        if NEEDED not in said_by([program, "--help"], self.name):
            raise UnsupportedOption(
                f"{program} is too old for forerun to tune, or no llama-server: it has no {NEEDED}; update llama.cpp"
            )
        found = re.search(r"version:?\s*(.+)", said_by([program, "--version"], self.name))
        return "unknown" if found is None else found[1].strip()

    def check(self, launch: Launch, wanted: Wanted) -> None:
        """Vocabularies are the server's own to compare; it says so in its log."""
        if launch.dtype:
            raise UnsupportedOption(f"a GGUF file has its own number format, got --dtype {launch.dtype}; leave it out")
        for draft in wanted.draft_models:
            if Path(draft).suffix != ".gguf":
                raise UnsupportedOption(f"llama.cpp reads draft models as GGUF files, got {draft}")
            locate(draft)

    def first(self, wanted: Wanted) -> list[Knobs]:
        methods, drafts = wanted.of(METHODS, self.name), wanted.draft_models
        found = [_ngram(method, 3, 3) for method in (SIMPLE, MAP) if method in methods]
        found += [_mod(*POOLS[0])] if MOD in methods else []
        found += [_draft(model, LENGTHS[0], SURE[0]) for model in drafts if DRAFT in methods]
        return [*found, *(_list(_draft(model, LENGTHS[0], SURE[0])) for model in drafts if LIST in methods)]

    def near(self, knobs: Knobs) -> list[Knobs]:
        own = knobs.settings
        if knobs.method in (SIMPLE, MAP):
            found = [_ngram(knobs.method, *sizes) for sizes in SIZES]
        elif knobs.method == MOD:
            found = [_mod(*sizes) for sizes in POOLS]
        else:
            model, length = own["--spec-draft-model"], own["--spec-draft-n-max"]
            sure, least = own["--spec-draft-p-min"], own["--spec-draft-n-min"]
            found = [_draft(model, other, sure, least) for other in LENGTHS]
            found += [_draft(model, length, other, least) for other in SURE]
            found += [_draft(model, length, sure, other) for other in LEAST if other < length]
            found = [_list(one) for one in found] if knobs.method == LIST else found
        return [one for place, one in enumerate(found) if one != knobs and one not in found[:place]]

    def command(self, launch: Launch, knobs: Knobs) -> list[str]:
        told = [launch.program, "--model", launch.model, "--parallel", str(launch.at_once)]
        told += ["--ctx-size", str(launch.context * launch.at_once)]
        if launch.threads is not None:
            told += ["--threads", str(launch.threads), "--threads-batch", str(launch.threads)]
        told += [part for name, value in knobs.settings.items() for part in (name, str(value))]
        return [*told, *launch.more]

    def place(self, port: int) -> Sequence[str]:
        return (*super().place(port), "--no-webui", "--cache-ram", "0")

    def fields(self) -> Mapping[str, Any]:
        """One token is taken, the likeliest, and nothing is kept of an earlier prompt."""
        return {"cache_prompt": False, **GREEDY}

    def complaint(self, log: str) -> str | None:
        return complaint_in(log)


def _ngram(method: str, n: int, m: int) -> Knobs:
    settings = {
        "--spec-type": method,
        f"--spec-{method}-size-n": n,
        f"--spec-{method}-size-m": m,
        "--spec-draft-n-max": m,
    }
    return Knobs(method, f"{method} {n} to {m} tokens", PLACES[method], settings)


def _mod(match: int, least: int, most: int) -> Knobs:
    settings = {
        "--spec-type": MOD,
        "--spec-ngram-mod-n-match": match,
        "--spec-ngram-mod-n-min": least,
        "--spec-ngram-mod-n-max": most,
    }
    return Knobs(MOD, f"{MOD} {match} to {least}..{most} tokens", PLACES[MOD], settings, remembers=True)


def _draft(model: str, length: int, sure: float, least: int = 0) -> Knobs:
    settings = {
        "--spec-type": "draft-simple",
        "--spec-draft-model": model,
        "--spec-draft-n-max": length,
        "--spec-draft-n-min": least,
        "--spec-draft-p-min": sure,
    }
    name = f"draft model {Path(model).name}, {least}..{length} tokens of {sure:g}"
    return Knobs(DRAFT, name, PLACES[DRAFT], settings)


def _list(draft: Knobs) -> Knobs:
    """The n-grams first, the draft model where they find nothing."""
    settings = {
        **draft.settings,
        "--spec-type": f"{SIMPLE},draft-simple",
        f"--spec-{SIMPLE}-size-n": 3,
        f"--spec-{SIMPLE}-size-m": draft.settings["--spec-draft-n-max"],
    }
    return replace(draft, method=LIST, name=f"{SIMPLE}, else {draft.name}", place=PLACES[LIST], settings=settings)

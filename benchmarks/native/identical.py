"""Whether speculative texts are plain decoding's, with every kind of draft, one prompt at a time and in batches.

    python benchmarks/native/identical.py smollm2 SUITE OUT.json --forms int4/16,int8,bfloat16 [--count 40] [--new 32]

A form is int4, int8, bfloat16 or float32, with the bits of activations after a slash. Drafts needn't be good for this: the
draft model is the target's first layers, the adapter an untrained copy of its last one. OUT is written after every form.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from forms import form_of, picked
from transformers import AutoModelForCausalLM

from forerun import Engine, load
from forerun.bench.compare import compare
from forerun.engine.measurement_conditions import conditions
from forerun.export.draft import export_draft
from forerun.models.files.adapter import write_adapter
from forerun.models.files.locate import locate
from forerun.models.gguf.convert import converted
from forerun.testing import tiny_adapter


def drafts(model: str, layers: int, exit_layer: int, work: Path) -> dict[str, str]:
    """Folders of a draft model and an adapter for this target, made if they aren't there."""
    draft, adapter = work / f"identical-draft-{exit_layer}", work / "identical-adapter"
    if not draft.is_dir():
        export_draft(model, exit_layer, draft, "bfloat16")
    if not adapter.is_dir():
        file = locate(model)
        folder = file if file.is_dir() else converted(file, torch.float32)
        whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        made = tiny_adapter(whole, layers, "state+token")
        write_adapter(replace(made, base=load(model, dtype="float32").identity), adapter)
    return {"draft": str(draft), "adapter": str(adapter)}


def methods(engine: Engine, exit_layer: int, made: dict[str, str], carved: bool) -> dict[str, Engine]:
    early = {"exit_layer": exit_layer}
    chosen: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "lookup": ("lookup", {}, {"k": 3}),
        "self": ("self", early, {"k": 3}),
        "draft_model": ("draft_model", {"model": made["draft"]}, {"k": 3}),
        "exit_adapter": ("exit_adapter", {"adapter": made["adapter"]}, {"k": 2}),
        "tree": ("tree", {"of": "self", **early, "n": 2}, {"k": 3}),
        "graph": ("graph", {"of": "self", **early}, {"k": 3}),
        "guessed": ("guessed", {"of": "self", **early}, {"k": 3}),
    }
    if carved:
        chosen["guessed, carved in int4"] = (
            "guessed",
            {"of": "self", "weights": "int4", "vocabulary": 16384},
            {"k": 4},
        )
        chosen["self carved in int4"] = ("self", {"weights": "int4", "vocabulary": 16384}, {"k": 3})
    return {
        name: engine.using(drafter, "fixed", drafter_options=options, policy_options=policy)
        for name, (drafter, options, policy) in chosen.items()
    }


def in_batches(engine: Engine, prompts: list[list[int]], plain: list[tuple[int, ...]], batch: int, new: int) -> int:
    """For how many prompts a batch's text is what plain decoding wrote of the prompt alone."""
    engine.forget()
    results = engine.generate(prompts, max_new_tokens=new, max_batch=batch)
    return sum(tuple(result.ids) == own for result, own in zip(results, plain, strict=True))


def checked(given: argparse.Namespace, form: str) -> dict[str, Any]:
    begun = time.perf_counter()
    engine = load(given.model, drafter="none", **form_of(form))
    prompts, questions = picked(engine, given.suite, given.count, given.max_prompt)
    layers = engine.runner.num_layers
    exit_layer = layers * 4 // 5
    engines = methods(engine, exit_layer, drafts(given.model, layers, exit_layer, given.work), form == "bfloat16")
    options: dict[str, Any] = {"max_new_tokens": given.new}
    plain = [tuple(engine.generate(prompt, speculate=False, **options).ids) for prompt in prompts]
    alone = compare(list(engines.values()), questions, options, repeats=1)
    cases: dict[str, Any] = {}
    for (name, own), found in zip(engines.items(), alone, strict=True):
        batched = in_batches(own, prompts, plain, given.batch, given.new)
        cases[name] = {
            "identical": found.identical and batched == len(prompts),
            "alone": {
                "identical": found.identical,
                "match_rate": found.match_rate,
                "first_difference": None if found.difference is None else asdict(found.difference),
                "tokens_per_round": found.speculative.stats.tokens_per_round,
            },
            "batched": {"identical_prompts": batched, "prompts": len(prompts)},
        }
        print(f"{form:12} {name:22} alone {found.identical}, batched {batched} of {len(prompts)}", flush=True)
    plainly = in_batches(engine, prompts, plain, given.batch, given.new)
    return {
        **conditions(engine, shlex.join(["python", *sys.argv])),
        "kernels": engine.runner.kernels,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": os.getloadavg(),
        "seconds": round(time.perf_counter() - begun, 1),
        "prompts": len(prompts),
        "new_tokens": given.new,
        "batch": given.batch,
        "plain_batched": {"identical_prompts": plainly, "prompts": len(prompts)},
        "methods": cases,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("suite", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--forms", type=lambda text: text.split(","), default=["int4/16", "int8", "bfloat16"])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--max-prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--work", type=Path, default=Path(".runs/native"), help="where the drafts are kept")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.work.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {}
    for form in given.forms:
        report[form] = checked(given, form)
        given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    cases = [case["identical"] for told in report.values() for case in told["methods"].values()]
    print(f"{sum(cases)} of {len(cases)} cases identical")


if __name__ == "__main__":
    main()

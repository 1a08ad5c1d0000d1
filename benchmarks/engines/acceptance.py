"""One draft in forerun, transformers, vLLM and llama.cpp: how many of its tokens each accepts, on the same prompts.

    python benchmarks/engines/acceptance.py smollm2 smollm2-draft SUITE OUT.json --vllm-python .peers/vllm/bin/python
        --llama-server .peers/llama-server/llama-server --gguf-target .peers/models/smollm2-f16.gguf

The draft is written by forerun.export for each engine, in float32 and for llama.cpp as F16 (its target, too; its keys and
values stay F16). Greedy, three tokens a round. Shares don't depend on the clock. After each engine the report is written.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path[0] = str(HERE.parent / "native")  # in place of this folder, whose name for a file in it is a package's

from forms import picked  # noqa: E402

from forerun import load  # noqa: E402
from forerun.bench.peer_models import peer_models  # noqa: E402
from forerun.bench.workers.llama_server import GREEDY, asked, free_port, wait_for  # noqa: E402
from forerun.export.engine_draft import export_for_engines  # noqa: E402

LENGTH = 3
Told = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    given: argparse.Namespace
    prompts: list[list[int]]
    folder: Path
    directory: Path


def by_forerun(task: Task, draft: str, **form: Any) -> Told:
    policy = {"policy": "fixed", "policy_options": {"k": LENGTH}}
    options = {"model": draft, "vocabulary": 0} if draft == str(task.directory) else {"model": draft}
    engine = load(task.given.model, drafter="draft_model", drafter_options=options, **policy, **form)
    found = [engine.generate(prompt, max_new_tokens=task.given.new) for prompt in task.prompts]
    return {
        "drafted": [one.stats.drafted for one in found],
        "accepted": [one.stats.accepted for one in found],
        "ids": [list(one.ids) for one in found],
    }


def by_transformers(task: Task) -> Told:
    from transformers import AutoModelForCausalLM

    places = (peer_models(task.given.model, "float32")["hf"], str(task.directory))
    target, draft = (AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32) for place in places)
    settings = {
        "num_assistant_tokens": LENGTH,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    draft.generation_config.update(**settings)
    count = {target: 0, draft: 0}
    for model in count:
        model.register_forward_pre_hook(lambda module, given: count.update({module: count[module] + 1}))
    told: Told = {"drafted": [], "accepted": [], "ids": []}
    for prompt in task.prompts:
        count.update(dict.fromkeys(count, 0))
        ids = torch.tensor([prompt])
        whole = target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=draft,
            max_new_tokens=task.given.new,
            do_sample=False,
        )
        new = whole[0, len(prompt) :].tolist()
        told["ids"].append(new)
        told["drafted"].append(count[draft])
        told["accepted"].append(len(new) - count[target])
    return told


def by_vllm(task: Task) -> Told:
    settings = {
        "model": peer_models(task.given.model, "float32")["hf"],
        "draft": str(task.directory),
        "length": LENGTH,
        "new": task.given.new,
        "prompts": task.prompts,
        "threads": task.given.threads,
    }
    asks, tells = task.folder / "asked.json", task.folder / "told.json"
    asks.write_text(json.dumps(settings), encoding="utf-8")
    script = str(HERE / "acceptance_vllm.py")
    subprocess.run([task.given.vllm_python, script, str(asks), str(tells)], check=True)
    told: Told = json.loads(tells.read_text(encoding="utf-8"))
    return told


def by_llama_server(task: Task) -> Told:
    given = task.given
    draft = task.folder / "draft.gguf"
    export_for_engines(given.model, given.draft, draft, weights="f16", gguf_target=given.gguf_target)
    port, threads = free_port(), str(given.threads)
    drafts = ["--spec-type", "draft-simple", "--spec-draft-model", str(draft), "--spec-draft-n-max", str(LENGTH)]
    work = ["--model", str(given.gguf_target), "--ctx-size", "2048", "--threads", threads, "--parallel", "1"]
    place = ["--host", "127.0.0.1", "--port", str(port), "--no-webui", "--cache-ram", "0"]
    server = subprocess.Popen([given.llama_server, *work, *drafts, *place], stdin=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    told: Told = {"drafted": [], "accepted": [], "ids": []}
    try:
        wait_for(server, url)
        for prompt in task.prompts:
            request = {"prompt": prompt, "n_predict": given.new, "cache_prompt": False, "return_tokens": True, **GREEDY}
            found = asked(f"{url}/completion", request)
            told["ids"].append(found["tokens"])
            told["drafted"].append(found["timings"].get("draft_n", 0))
            told["accepted"].append(found["timings"].get("draft_n_accepted", 0))
    finally:
        server.terminate()
        server.wait()
    return told


def subjects(task: Task) -> dict[str, Callable[[], Told]]:
    given = task.given
    found: dict[str, Callable[[], Told]] = {
        "forerun, the draft itself": lambda: by_forerun(task, given.draft, dtype="float32"),
        "forerun, what was exported": lambda: by_forerun(task, str(task.directory), dtype="float32"),
        "transformers": lambda: by_transformers(task),
    }
    if given.vllm_python:
        found["vllm"] = lambda: by_vllm(task)
    if given.llama_server:
        found["llama-server, F16"] = lambda: by_llama_server(task)
    return {name: subject for name, subject in found.items() if not given.only or name.split(",")[0] in given.only}


def row_of(name: str, told: Told, first: Told) -> dict[str, Any]:
    drafted, accepted = sum(told["drafted"]), sum(told["accepted"])
    return {
        "engine": name,
        "acceptance": round(accepted / drafted, 4),
        "drafted": drafted,
        "accepted": accepted,
        "tokens": sum(map(len, told["ids"])),
        "equal_texts": sum(own == other for own, other in zip(told["ids"], first["ids"], strict=True)),
        "each": list(zip(told["drafted"], told["accepted"], strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("draft")
    parser.add_argument("suite", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--vllm-python", default="")
    parser.add_argument("--llama-server", default="")
    parser.add_argument("--gguf-target", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="these engines, such as llama-server")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--max-prompt", type=int, default=300)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    given = parser.parse_args()
    prompts, _ = picked(load(given.model), given.suite, given.prompts, given.max_prompt)
    report: dict[str, Any] = {
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": given.model,
        "draft": given.draft,
        "drafted_a_round": LENGTH,
        "new_tokens": given.new,
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "rows": [],
    }
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "draft"
        written = export_for_engines(given.model, given.draft, directory, dtype="float32")
        report |= {"said": written.said, "vocabulary": written.vocabulary}
        first: Told | None = None
        for name, subject in subjects(Task(given, prompts, Path(folder), directory)).items():
            told = subject()
            first = first or told
            report["rows"].append(row_of(name, told, first))
            given.output.parent.mkdir(parents=True, exist_ok=True)
            given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            row = report["rows"][-1]
            print(
                f"{name:28} {row['acceptance']:.2%} of {row['drafted']}, equal texts {row['equal_texts']}", flush=True
            )


if __name__ == "__main__":
    main()

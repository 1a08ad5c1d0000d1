"""Another engine as a backend: a process of its own, in a Python of its own if need be.

A plug-in is a worker file; workers/protocol.py says what it holds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from ..errors import InvalidModelFile, UnsupportedOption
from .backend import Backend, Batch, PeerFailed, Sample, sample_of
from .gguf_format import gguf_format
from .worker import WORKERS, Worker

KNOWN = {
    "llama.cpp": "llama_cpp.py",
    "llama-server": "llama_server.py",
    "openvino": "openvino_pipeline.py",
    "transformers": "hf_generate.py",
    "vllm": "vllm_engine.py",
}
PLAIN = "plain"
OPEN_SECONDS = 900.0
ANSWER_SECONDS = 600.0
EXPORT = {"hf": "DIRECTORY", "gguf": "NAME.gguf"}  # what `forerun export draft` is told to write


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Common settings. models: the model's path by format ("hf": a directory, "gguf": a file), or by a name of the user's.

    drafts: draft models' paths by format. dtype is for the hf format; a gguf file has its own. context: the most tokens of a
    prompt and its answer; at_once: the most prompts in flight. pythons and extra (settings for the worker) are by peer name.
    """

    models: Mapping[str, str]
    threads: int
    dtype: str
    context: int = 0
    eos: tuple[int, ...] = ()
    generation_config: bool = True
    pythons: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drafts: Mapping[str, str] = field(default_factory=dict)
    at_once: int = 1


@final
class Peer(Backend):
    """One mode of another engine, with a model open."""

    def __init__(
        self, name: str, baseline: str, worker: Worker, about: Mapping[str, Any], several: bool = False
    ) -> None:
        self.name = name
        self.baseline = baseline
        self.about = about
        self.several = several
        self._worker = worker

    def answer(self, ids: Sequence[int], max_new_tokens: int) -> Sample:
        request = {"do": "answer", "ids": list(ids), "max_new_tokens": max_new_tokens}
        return sample_of(self._worker.ask(request, ANSWER_SECONDS))

    def answer_all(self, prompts: Sequence[Sequence[int]], at_once: int, max_new_tokens: int) -> Batch:
        if not self.several:
            return super().answer_all(prompts, at_once, max_new_tokens)
        asked = {"prompts": [list(ids) for ids in prompts], "at_once": at_once, "max_new_tokens": max_new_tokens}
        told = self._worker.ask({"do": "answer_all", **asked}, ANSWER_SECONDS)
        return Batch(tuple(map(tuple, told["ids"])), float(told["seconds"]))

    def close(self) -> None:
        self._worker.close()


@final
@dataclass(frozen=True, slots=True)
class PeerChoice:
    """A peer as the user named it: "vllm", "vllm:ngram", "llama.cpp@q4_0:plain" or "my_engine.py:plain".

    model: which of the models of PeerSettings it reads; the one in its own format if empty.
    """

    peer: str
    file: Path
    modes: tuple[str, ...]
    model: str = ""

    @property
    def label(self) -> str:
        return f"{self.peer}@{self.model}" if self.model else self.peer


def peer_choice(wanted: str) -> PeerChoice:
    """Raises UnsupportedOption on a name that is neither a known peer nor a worker file."""
    named, _, modes = wanted.partition(":")
    peer, _, model = (named, "", "") if Path(named).is_file() else named.partition("@")
    chosen = tuple(mode for mode in modes.split("+") if mode)
    if peer in KNOWN:
        return PeerChoice(peer, WORKERS / KNOWN[peer], chosen, model)
    if peer.endswith(".py") and Path(peer).is_file():
        return PeerChoice(Path(peer).stem, Path(peer).resolve(), chosen, model)
    raise UnsupportedOption(f"unknown peer {peer!r}; known: {', '.join(KNOWN)}, or the path of a worker file (.py)")


def open_peer(choice: PeerChoice, settings: PeerSettings, failures: dict[str, str]) -> Iterator[Backend]:
    """The chosen modes (all if none was named), each in a process with its model open.

    Modes that can't be opened are noted in failures. Plain decoding is always among the modes: the others are compared with
    it.
    """
    python = settings.pythons.get(choice.peer, sys.executable)
    try:
        with closing(Worker(choice.label, python, choice.file, settings.threads)) as worker:
            described = worker.ask({"do": "describe"}, OPEN_SECONDS)
    except PeerFailed as failure:
        failures[choice.label] = str(failure)
        return
    known = described["modes"]
    for mode in choice.modes:
        if mode not in known:
            raise UnsupportedOption(f"peer {choice.label!r} has no mode {mode!r}; its modes: {', '.join(known)}")
    for mode in dict.fromkeys((PLAIN, *choice.modes)) if choice.modes else known:
        try:
            peer = _open_mode(choice, mode, described, python, settings)
        except PeerFailed as failure:
            failures[f"{choice.label}:{mode}"] = str(failure)
        else:
            yield peer


def _open_mode(
    choice: PeerChoice, mode: str, described: Mapping[str, Any], python: str, settings: PeerSettings
) -> Backend:
    name, form = f"{choice.label}:{mode}", described["model"]
    wanted = choice.model or form
    if wanted not in settings.models:
        raise PeerFailed(f"peer {name} needs the model in the form {wanted}; name it with --peer-model {wanted}=PATH")
    model, own = Path(settings.models[wanted]), dict(settings.extra.get(choice.peer, {}))
    weights = _format(model, form, settings.dtype)
    refused = [f"{held} ({why})" for held, why in described["refused"].items() if held in weights]
    if refused:
        raise PeerFailed(
            f"peer {name} doesn't read {refused[0]}; make an F16 file with benchmarks/quantise.py and name it as in --peers "
            f"{choice.peer}@f16:{mode} --peer-model f16=FILE"
        )
    drafting = mode in described["drafts"]
    draft = _draft(name, form, settings) if drafting else None
    request = {
        "do": "open",
        "mode": mode,
        "model": str(model),
        "threads": settings.threads,
        "dtype": settings.dtype,
        "context": settings.context,
        "at_once": settings.at_once,
        "draft": None if draft is None else str(draft),
        "eos": list(settings.eos),
        "generation_config": settings.generation_config,
        "settings": own,
    }
    with ExitStack() as stack:
        worker = stack.enter_context(closing(Worker(name, python, choice.file, settings.threads)))
        opened = worker.ask(request, OPEN_SECONDS)
        about = {
            "versions": opened["versions"],
            "model": model.name,
            "form": form,
            "format": f"{weights}, computed in {settings.dtype}" if described["computes"] else weights,
            "threads": settings.threads,
            "mode": described["about"].get(mode, ""),
            "settings": own,
            **({} if draft is None else {"draft": f"{draft.name} ({_format(draft, form, settings.dtype)})"}),
        }
        stack.pop_all()
    return Peer(name, f"{choice.label}:{PLAIN}", worker, about, opened["several"])


def _format(path: Path, form: str, dtype: str) -> str:
    """How the weights are held. Raises PeerFailed where a GGUF file can't be read."""
    if form == "hf":
        return dtype
    try:
        return gguf_format(path)
    except InvalidModelFile as error:
        raise PeerFailed(str(error)) from error


def _draft(name: str, form: str, settings: PeerSettings) -> Path:
    if form not in settings.drafts:
        raise PeerFailed(
            f"peer {name} needs a draft model; write one with forerun export draft MODEL --draft DRAFT -o {EXPORT[form]} "
            f"and name it with --peer-draft {form}={EXPORT[form]}"
        )
    return Path(settings.drafts[form])

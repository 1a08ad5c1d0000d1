"""Runs one worker file and speaks JSON lines: requests on standard input, replies on standard output.

    python protocol.py WORKER.py
    {"do": "describe"}                                   -> {"modes": [...], "about": {...}, "model": "hf" or "gguf", ...}
    {"do": "open", "mode", "model", "threads", "dtype", "context", "at_once", "draft", "eos", "generation_config",
     "settings"}                                         -> {"versions": {...}, "several": can it answer prompts at once}
    {"do": "answer", "ids": [...], "max_new_tokens": n}  -> {"ids", "first_tokens", "first_seconds", "decode_seconds", ...}
    {"do": "answer_all", "prompts": [[...]], "at_once": n, "max_new_tokens": n}    -> {"ids": [[...]], "seconds"}

A request that fails is answered with {"error": sentence}. A worker file defines MODES (names, or a dictionary that says of
each what it is), MODEL and open_model(options), which gives its versions and a function answer(ids, max_new_tokens, emit).
emit takes tokens as they come and says True when the answer is complete. An answer that returns a dictionary replaces the
worker's figures in the reply by those that the engine measured. If prompts can be answered at once, open_model also gives
answer_all(prompts, at_once, max_new_tokens), which keeps so many in flight and returns their tokens. DRAFTS, if defined, are
the modes that need a draft model; REFUSED says why files in a format aren't read; COMPUTES, that dtype counts for files.
This file runs in Pythons that have no forerun.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Emit = Callable[[Sequence[int]], bool]
Answer = Callable[[list[int], int, Emit], "dict[str, Any] | None"]
AnswerAll = Callable[[list[list[int]], int, int], Sequence[Sequence[int]]]


class Stopwatch:
    """Records an answer's tokens and their times. The clock starts when it is created."""

    def __init__(self, max_new_tokens: int, eos: Iterable[int]) -> None:
        self._limit = max_new_tokens
        self._eos = frozenset(eos)
        self._ids: list[int] = []
        self._complete = False
        self._first_tokens = 0
        self._begun = self._first = self._last = time.perf_counter()

    def emit(self, tokens: Sequence[int]) -> bool:
        """Count tokens up to the end of sequence and the limit; True when there is nothing more to take."""
        if self._complete or not tokens:
            return self._complete
        for token in tokens:
            self._ids.append(int(token))
            if self._ids[-1] in self._eos or len(self._ids) >= self._limit:
                self._complete = True
                break
        self._last = time.perf_counter()
        if not self._first_tokens:
            self._first, self._first_tokens = self._last, len(self._ids)
        return self._complete

    def answer(self) -> dict[str, Any]:
        """The record. first_tokens came together with the first one and don't count as decoded."""
        return {
            "ids": self._ids,
            "first_tokens": self._first_tokens,
            "first_seconds": self._first - self._begun,
            "decode_seconds": self._last - self._first,
        }


def forget_peak() -> None:
    """Reset the measurement of peak memory, if the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass
    torch = _torch_on_gpu()
    if torch is not None:
        torch.cuda.reset_peak_memory_stats()


def peak_mb() -> float:
    """The most memory held since forget_peak, in MB: resident, or the GPU's if there is one in use."""
    torch = _torch_on_gpu()
    if torch is not None:
        return float(torch.cuda.max_memory_allocated()) / 2**20
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


def _torch_on_gpu() -> Any | None:
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized() else None


def load_worker(path: Path) -> Any:
    """The worker file as a module. Imports skip its folder: it may be named after a package that it imports."""
    spec = importlib.util.spec_from_file_location("forerun_peer_worker", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    return worker


class RequestHandler:
    """Handles the requests to a worker, one after the other."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._answer: Answer | None = None
        self._answer_all: AnswerAll | None = None
        self._eos: list[int] = []

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        task = request.pop("do", None)
        if task == "describe":
            modes = self._worker.MODES
            return {
                "modes": list(modes),
                "about": modes if isinstance(modes, dict) else {},
                "model": self._worker.MODEL,
                "drafts": list(getattr(self._worker, "DRAFTS", ())),
                "refused": dict(getattr(self._worker, "REFUSED", {})),
                "computes": bool(getattr(self._worker, "COMPUTES", False)),
            }
        if task == "open":
            if request["mode"] not in self._worker.MODES:
                raise ValueError(f"unknown mode {request['mode']!r}; known: {', '.join(self._worker.MODES)}")
            self._eos = request["eos"]
            versions, self._answer, *more = self._worker.open_model(request)
            self._answer_all = more[0] if more else None
            return {"versions": versions, "several": bool(more)}
        if task == "answer" and self._answer is not None:
            forget_peak()
            watch = Stopwatch(request["max_new_tokens"], self._eos)
            told = self._answer(request["ids"], request["max_new_tokens"], watch.emit)
            return {**watch.answer(), "peak_mb": peak_mb(), **(told or {})}
        if task == "answer_all" and self._answer_all is not None:
            return self._all(self._answer_all, request["prompts"], request["at_once"], request["max_new_tokens"])
        raise ValueError(f"can't do {task!r} now; known: describe, open, and answer once a model is open")

    def _all(self, answer_all: AnswerAll, prompts: list[list[int]], at_once: int, limit: int) -> dict[str, Any]:
        """The seconds are those of all of them together; what follows an end of sequence is cut off."""
        begun = time.perf_counter()
        answers = answer_all(prompts, at_once, limit)
        seconds = time.perf_counter() - begun
        watches = [Stopwatch(limit, self._eos) for _ in answers]
        for watch, tokens in zip(watches, answers, strict=True):
            watch.emit(tokens)
        return {"ids": [watch.answer()["ids"] for watch in watches], "seconds": seconds}


def main(path: str) -> None:
    # what libraries print to standard output must not mix with the replies
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    del sys.path[0]
    handler = RequestHandler(load_worker(Path(path)))
    for line in sys.stdin:
        try:
            reply = handler.reply(json.loads(line))
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(sys.argv[1])

"""Answers of a model that a server runs, in the form in which the own engine's are kept.

Many requests are in flight. Each answer is written as it comes, so a run that ends early has what it got, and goes on from
there. Where the server tells text alone, the ids are the tokenizer's of that text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from ...engine.prompts.questions import Question, has_chat_template
from ...jsonl import Lines, Skipped
from .answers import AnswerOptions, described, of_the_same, questions_asked, seed_of
from .endpoint import Endpoint, EndpointFailed, Refused, Reply
from .turns import plain_ids, turn_end

T = TypeVar("T")
SEEDS = 2**31  # that every server takes
FINISHED = ("stop", "length")


def answer_remotely(
    endpoint: Endpoint,
    served: str,
    tokenizer: Any,
    prompts: Path,
    path: Path,
    options: AnswerOptions,
    exclude: Collection[str] = (),
    in_flight: int = 32,
    skipped: Skipped | None = None,
) -> Iterator[tuple[int, int, int]]:
    """As answers.answer, of the model that the endpoint serves under this name; tokenizer is this model's.

    Raises EndpointFailed where the server is gone, Refused where it refuses a prompt; with skipped those are left out.
    """
    made_by = {**described(options), "served_model": served}
    chat = has_chat_template(tokenizer)
    with Lines(path) as lines:
        known = {str(entry.get("id")) for entry in of_the_same(lines, made_by)}
        asked = questions_asked(tokenizer, prompts, options.max_prompt, exclude, skipped)
        missing = {name: question for name, (_, question) in asked.items() if name not in known}
        total, done, tokens = len(asked), len(asked) - len(missing), 0
        yield done, total, tokens

        def ask(name: str) -> Reply:
            fields = {
                "model": served,
                "max_tokens": options.max_new_tokens,
                "temperature": options.temperature,
                "top_p": options.top_p,
                "seed": seed_of(options.seed, name) % SEEDS,
            }
            return _finished(endpoint.ask(missing[name].prompt((), chat), fields), missing[name])

        try:
            for name, reply in _each([*missing], ask, in_flight, skipped):
                ids = _ids(tokenizer, reply) if reply.ids is None else reply.ids
                lines.write(
                    {
                        "id": name,
                        "prompt_ids": asked[name][0],
                        "answer_ids": ids,
                        "answer": reply.text,
                        "finish_reason": reply.finish_reason,
                        "made_by": made_by,
                    }
                )
                done, tokens = done + 1, tokens + len(ids)
                yield done, total, tokens
        except (EndpointFailed, Refused) as error:
            raise type(error)(
                f"{error}; {done} of {total} answers are in {path}, and the same command goes on from there"
            ) from error


def _each(
    names: list[str], ask: Callable[[str], T], in_flight: int, skipped: Skipped | None
) -> Iterator[tuple[str, T]]:
    """What ask gives for each name, as it comes. After an error nothing more is asked; it is raised when all have come."""
    waiting, taking = iter(names), Lock()
    results: SimpleQueue[tuple[str, T | Exception] | None] = SimpleQueue()
    failed: Exception | None = None
    over = False

    def work() -> None:
        while True:
            with taking:
                name = None if over else next(waiting, None)
            if name is None:
                results.put(None)
                return
            try:
                results.put((name, ask(name)))
            except Exception as error:
                results.put((name, error))

    workers = min(in_flight, len(names))
    for _ in range(workers):
        # whoever interrupts the command needn't wait for answers that nobody will read
        Thread(target=work, daemon=True).start()
    try:
        while workers:
            result = results.get()
            if result is None:
                workers -= 1
            elif isinstance(result[1], Refused) and skipped is not None:
                skipped.add(str(result[1]))
            elif isinstance(result[1], Exception):
                failed, over = failed or result[1], True
            else:
                yield result[0], result[1]
    finally:
        over = True
    if failed is not None:
        raise failed


def _finished(reply: Reply, question: Question) -> Reply:
    if reply.finish_reason not in FINISHED:
        raise Refused(f"{question.place}: the server ended the answer with {reply.finish_reason!r}")
    return reply


def _ids(tokenizer: Any, reply: Reply) -> list[int]:
    """The tokenizer's ids of an answer, with the end of the turn where it ended by itself."""
    ids = plain_ids(tokenizer, reply.text)
    if reply.finish_reason != "stop":
        return ids
    own = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    end = turn_end(tokenizer, own)
    return [*ids, *(own if end is None else [end])]

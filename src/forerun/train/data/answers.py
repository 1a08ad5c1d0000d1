"""The target answers prompts: drafters are trained on what the target itself writes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...engine.engine import Engine
from ...engine.prompts.questions import Question, has_chat_template, questions_in
from ...engine.request import RequestOptions
from ...jsonl import Lines, Skipped
from .prompts import plain
from .states import StateStore, name_of, recorder

# made_by tells the law of drawn answers by temperature and top_p
NO_OTHER_FILTERS: RequestOptions = {"top_k": 0, "min_p": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """How prompts are answered: greedily unless temperature is above 0. generation_config as in RequestOptions.

    Prompts of more than max_prompt tokens are left out, and such as leave the model no room for an answer.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    max_prompt: int = 1024
    generation_config: bool = True

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_prompt"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


def answer(
    engine: Engine,
    prompts: Path,
    path: Path,
    options: AnswerOptions,
    exclude: Collection[str] = (),
    max_batch: int = 48,
    states: StateStore | None = None,
    skipped: Skipped | None = None,
) -> Iterator[tuple[int, int, int]]:
    """Add an answer for each prompt that the file has none for yet: yields (answers there, answers in all, new tokens).

    Of a conversation the first turn is asked. exclude: user turns that must not be answered, a benchmark's; the comparison
    ignores case and white space. states: where the states that come by on the way are to be kept. Raises ValueError where
    the file's answers were made by another model or with other options, and on a line that asks nothing; with skipped such
    lines are counted there and left out.
    """
    made_by = {**described(options), "model": engine.identity.weights}
    if options.generation_config and (fields := _acting(engine, options)):
        made_by["generation_config"] = fields
    with Lines(path) as lines:
        known = {str(entry.get("id")) for entry in of_the_same(lines, made_by)}
        longest, room = options.max_prompt, engine.runner.max_length
        longest = longest if room is None else min(longest, room - 1)
        asked = questions_asked(engine.tokenizer, prompts, longest, exclude, skipped)
        missing = [(name, ids) for name, (ids, _) in asked.items() if name not in known]
        total, done, tokens = len(asked), len(asked) - len(missing), 0
        yield done, total, tokens
        given: RequestOptions = {
            "max_new_tokens": options.max_new_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
            **NO_OTHER_FILTERS,
            "generation_config": options.generation_config,
        }
        requests: list[tuple[list[int], RequestOptions]] = [
            (ids, {**given, "seed": seed_of(options.seed, name)}) for name, ids in missing
        ]
        asking = engine if states is None else engine.using(recorder(states.layers, states.add))
        for index, result in asking.each(requests, max_batch=max_batch):
            name, ids = missing[index]
            lines.write(
                {
                    "id": name,
                    "prompt_ids": ids,
                    "answer_ids": list(result.ids),
                    "answer": result.text,
                    "finish_reason": result.finish_reason,
                    "made_by": made_by,
                }
            )
            done, tokens = done + 1, tokens + len(result.ids)
            yield done, total, tokens


def _acting(engine: Engine, options: AnswerOptions) -> list[str]:
    """The fields of the checkpoint's generation config that have a part in the answers."""
    defaults = engine.checkpoint_defaults
    return [
        *(name for name in defaults.fields if name != "max_new_tokens"),
        *(defaults.warpers if options.temperature else ()),
    ]


def described(options: AnswerOptions) -> dict[str, Any]:
    """The options as they stand in the file."""
    return {name: value for name, value in asdict(options).items() if name != "generation_config"}


def questions_asked(
    tokenizer: Any | None, prompts: Path, longest: int, exclude: Collection[str], skipped: Skipped | None
) -> dict[str, tuple[list[int], Question]]:
    """Name -> prompt ids and the question; equal prompts are asked once."""
    chat = has_chat_template(tokenizer)
    excluded = {plain(text) for text in exclude}
    asked: dict[str, tuple[list[int], Question]] = {}
    for _, _, question in questions_in(prompts, skipped):
        if excluded.intersection(map(plain, question.turns)):
            continue
        try:
            ids = question.ids((), chat, tokenizer)
        except ValueError as error:
            if skipped is None:
                raise
            skipped.add(str(error))
            continue
        if len(ids) <= longest:
            asked[name_of(ids)] = ids, question
    if not asked:
        told = "" if skipped is None else skipped.sentence()
        raise ValueError(f"{prompts} holds no prompt of at most {longest} tokens that may be used{told}")
    return asked


def of_the_same(lines: Lines, made_by: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is there already. Raises ValueError on a line that was made otherwise."""
    for number, entry in zip(lines.numbers, lines.known, strict=True):
        if entry.get("made_by") != made_by:
            raise ValueError(
                f"{lines.path}, line {number} was made by another model or with other options ({entry.get('made_by')}, now "
                f"{dict(made_by)}); write to another file"
            )
    return lines.known


def seed_of(seed: int, name: str) -> int:
    """A prompt's own."""
    return int(hashlib.sha256(f"{seed} {name}".encode()).hexdigest()[:12], 16)

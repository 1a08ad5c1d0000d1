"""Training examples from JSON lines: text, a chat, a prompt with its answer, or token ids as `train answers` writes them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UnsupportedOption
from ..jsonl import read_lines

FORMS = (
    '"text"',
    '"messages" that end with the assistant\'s',
    '"prompt" and "answer"',
    '"prompt_ids" and "answer_ids"',
)


@dataclass(frozen=True, slots=True)
class Example:
    """ids[start:] is what is learnt: the answer, or of a plain text all but the first token."""

    ids: tuple[int, ...]
    start: int


def read_examples(path: Path, tokenizer: Any | None, max_length: int | None = None) -> list[Example]:
    """The examples of a file. Messages, and a prompt with an answer, go through the chat template if there is one.

    Raises ValueError with the number of a line that is none of FORMS, has nothing to learn, or is longer than max_length
    tokens, and where the file has no example.
    """
    examples: list[Example] = []
    for number, entry in read_lines(path):
        try:
            example = _example(entry, tokenizer)
            if not 0 < example.start < len(example.ids):
                raise ValueError(
                    "there is nothing to learn: a prompt and an answer of at least a token each are needed"
                )
            if max_length is not None and len(example.ids) > max_length:
                raise ValueError(
                    f"the text has {len(example.ids)} tokens and at most {max_length} fit; shorten it, or leave it out"
                )
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        examples.append(example)
    if not examples:
        raise ValueError(f"{path} holds no example; a line has {', or '.join(FORMS)}")
    return examples


def split(examples: Sequence[Example], held_out: float, seed: int) -> tuple[list[Example], list[Example]]:
    """Examples to learn from and held-out ones, at least one of each; equal token sequences stay on one side.

    Raises ValueError where there are fewer than two different ones, or held_out isn't within (0, 1).
    """
    out = held_back((example.ids for example in examples), held_out, seed, "examples")
    return [one for one in examples if one.ids not in out], [one for one in examples if one.ids in out]


def held_back(keys: Iterable[tuple[int, ...]], held_out: float, seed: int, what: str) -> set[tuple[int, ...]]:
    """The keys that are held out, at least one and not all of them. what they are, for messages.

    Raises ValueError where there are fewer than two different ones, or held_out isn't within (0, 1).
    """
    if not 0 < held_out < 1:
        raise ValueError(f"the held-out part must be above 0 and below 1, got {held_out}")
    different = sorted(set(keys))
    if len(different) < 2:
        raise ValueError(f"at least two different {what} are needed: one to learn from, one to be held out")
    random.Random(seed).shuffle(different)
    return set(different[: min(max(1, round(held_out * len(different))), len(different) - 1)])


def fingerprint(examples: Sequence[Example]) -> str:
    """16 hex digits that say whether examples are the same, in the same order."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(f"{example.start} {example.ids}\n".encode())
    return digest.hexdigest()[:16]


def _example(entry: Mapping[str, Any], tokenizer: Any | None) -> Example:
    if "prompt_ids" in entry and "answer_ids" in entry:
        prompt, answer = _ids(entry["prompt_ids"]), _ids(entry["answer_ids"])
        return Example((*prompt, *answer), len(prompt))
    if tokenizer is None:
        raise UnsupportedOption("text needs a tokenizer; take a model that has one")
    if "text" in entry:
        ids = tuple(tokenizer(_text(entry, "text")).input_ids)
        return Example(ids, 1)
    if "messages" in entry:
        return _chat(entry["messages"], tokenizer)
    if "prompt" in entry and "answer" in entry:
        asked, said = _text(entry, "prompt"), _text(entry, "answer")
        if tokenizer.chat_template:
            return _chat([{"role": "user", "content": asked}, {"role": "assistant", "content": said}], tokenizer)
        return _joined(tokenizer(asked).input_ids, said, tokenizer)
    raise ValueError(f"a line has {', or '.join(FORMS)}; got {', '.join(map(repr, entry)) or 'an empty object'}")


def _chat(messages: Any, tokenizer: Any) -> Example:
    """The last answer is learnt; what comes before is its prompt."""
    if not isinstance(messages, list) or not messages or not all(isinstance(one, Mapping) for one in messages):
        raise ValueError('"messages" must be a list of objects with "role" and "content"')
    if messages[-1].get("role") != "assistant" or not isinstance(messages[-1].get("content"), str):
        raise ValueError("the last message must be the assistant's, with text as its content")
    if not tokenizer.chat_template:
        raise UnsupportedOption('this tokenizer has no chat template; use "prompt" and "answer"')
    encoded: Callable[..., Any] = tokenizer.apply_chat_template
    prompt = encoded(messages[:-1], add_generation_prompt=True, return_dict=True)["input_ids"]
    return _joined(prompt, messages[-1]["content"], tokenizer)


def _joined(prompt: Sequence[int], answer: str, tokenizer: Any) -> Example:
    """The answer ends with the end of sequence, as a model that was asked would end it."""
    ids = tokenizer(answer, add_special_tokens=False).input_ids
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return Example((*prompt, *ids, *end), len(prompt))


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f'"{key}" must hold text that is not empty')
    return value


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(one, int) and one >= 0 for one in value):
        raise ValueError("token ids must be a list of whole numbers from 0 on")
    return value

"""Training examples from JSON lines: a chat, a prompt with its answer, text, or token ids as `train answers` writes them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...engine.prompts.questions import has_chat_template
from ...errors import UnsupportedOption
from ...jsonl import Skipped, made_of
from .record_formats import KNOWN, Chat, Ids, Text, record_of
from .turns import answered, encoded_text, end_of_sequence, ended, split_ids


@dataclass(frozen=True, slots=True)
class Example:
    """ids[start:] is what is learnt: the answer, or of a plain text all but the first token."""

    ids: tuple[int, ...]
    start: int


def read_examples(
    path: Path,
    tokenizer: Any | None,
    max_length: int | None = None,
    *,
    least_prompt: int = 1,
    vocab_size: int | None = None,
    eos: Collection[int] = (),
    limit: int | None = None,
    skipped: Skipped | None = None,
) -> list[Example]:
    """The examples of a file, the first `limit` of them. Conversations go through the chat template.

    eos: where decoding stops; the tokenizer's end of sequence if not given. Raises ValueError with the number of a line
    that is none of the forms, has nothing to learn, a prompt of fewer tokens than least_prompt, more than max_length
    tokens, or an id that isn't below vocab_size, and where the file has no example. With skipped such lines are counted
    there and left out.
    """

    def make(entry: Mapping[str, Any]) -> Example:
        example = _example(entry, tokenizer, eos)
        _check(example, max_length, least_prompt, vocab_size)
        return example

    examples = [example for _, example in islice(made_of(path, make, skipped), limit)]
    if not examples:
        told = "" if skipped is None else skipped.sentence()
        raise ValueError(f"{path} holds no example; a line has {', or '.join(KNOWN)}{told}")
    return examples


def _check(example: Example, max_length: int | None, least_prompt: int, vocab_size: int | None) -> None:
    size = len(example.ids)
    if not 0 < example.start < size:
        raise ValueError("there is nothing to learn: a prompt and an answer of at least a token each are needed")
    if example.start < least_prompt:
        raise ValueError(f"the prompt has {example.start} tokens and at least {least_prompt} are needed")
    if max_length is not None and size > max_length:
        raise ValueError(f"the text has {size} tokens and at most {max_length} fit; shorten it, or leave it out")
    if vocab_size is not None and max(example.ids) >= vocab_size:
        raise ValueError(
            f"token id {max(example.ids)} is beyond the model's {vocab_size} ids; was this made with another tokenizer?"
        )


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


def _example(entry: Mapping[str, Any], tokenizer: Any | None, eos: Collection[int]) -> Example:
    form = record_of(entry, has_chat_template(tokenizer))
    if isinstance(form, Ids):
        return Example((*form.prompt, *form.answer), len(form.prompt))
    if tokenizer is None:
        raise UnsupportedOption("text needs a tokenizer; take a model that has one")
    if isinstance(form, Text):
        return Example(tuple(encoded_text(tokenizer, form.text)), 1)
    if isinstance(form, Chat):
        prompt, learnt = answered(tokenizer, form.messages, eos)
    else:
        prompt, learnt = split_ids(tokenizer, form.prompt, form.answer, special=True)
        learnt = ended(learnt, end_of_sequence(tokenizer, eos))
    return Example((*prompt, *learnt), len(prompt))

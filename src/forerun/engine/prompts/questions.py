"""What a set of prompts asks, from a JSONL file, one question a line.

A line holds "prompt" (text), "messages" (a chat that ends with the user), or Spec-Bench's "turns" (what a user says in
turn, each answered before the next). Other keys, such as "question_id", are the file's own business.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import UnsupportedOption
from ...jsonl import Line, Skipped, made_of
from .chat import joined_parts
from .forms import encode

Message = Mapping[str, str]
KINDS = ("prompt", "messages", "turns")


@dataclass(frozen=True, slots=True)
class Question:
    """turns are what the user says, one after the other, after the messages of `before`.

    place: the file and the line it is from, for messages.
    """

    turns: tuple[str, ...]
    before: tuple[Message, ...] = ()
    place: str = field(default="", compare=False)

    def prompt(self, answers: Sequence[str], chat: bool) -> str | list[Message]:
        """The prompt of the turn after these answers: messages for a chat template, or plain text.

        Raises UnsupportedOption where plain text is asked for and there is more than one message.
        """
        if chat:
            said = list(self.before)
            for turn, answer in zip(self.turns, answers, strict=False):
                said += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
            return [*said, {"role": "user", "content": self.turns[len(answers)]}]
        if self.before or len(self.turns) > 1:
            raise UnsupportedOption(
                "several messages need a chat template: take a chat model and leave the template on, or ask single prompts"
            )
        return self.turns[0]

    def ids(self, answers: Sequence[str], chat: bool, tokenizer: Any | None) -> list[int]:
        """The prompt's token ids. Raises ValueError that names the question's place on what can't be asked."""
        try:
            return encode(self.prompt(answers, chat), tokenizer)
        except UnsupportedOption as error:
            raise UnsupportedOption(self._at(error)) from error
        except ValueError as error:
            raise ValueError(self._at(error)) from error

    def _at(self, error: Exception) -> str:
        return f"{self.place}: {error}" if self.place else str(error)


def has_chat_template(tokenizer: Any | None) -> bool:
    return tokenizer is not None and bool(tokenizer.chat_template)


def read_questions(path: str | Path) -> list[Question]:
    """The questions of a JSONL file. Raises ValueError that names the line at fault, or says that there is no question."""
    return [question for _, _, question in questions_in(path)]


def questions_in(
    path: str | Path, skipped: Skipped | None = None
) -> Iterator[tuple[Line, Mapping[str, Any], Question]]:
    """The same one by one, each with its line and what else stands there; lines at fault are left out with skipped."""
    found = False
    for line, (entry, question) in made_of(path, _entry, skipped, "the prompts file"):
        found = True
        yield line, entry, replace(question, place=line.place)
    if not found:
        raise ValueError(f"the prompts file {path} holds no prompt{'' if skipped is None else skipped.sentence()}")


def _entry(entry: dict[str, Any]) -> tuple[dict[str, Any], Question]:
    return entry, _question(entry)


def _question(entry: dict[str, Any]) -> Question:
    kinds = [kind for kind in KINDS if kind in entry]
    if len(kinds) != 1:
        raise ValueError(f"an object with one of {', '.join(map(repr, KINDS))} is needed, got {json.dumps(entry)[:60]}")
    value = entry[kinds[0]]
    if kinds[0] == "prompt":
        return Question((_text(value, "prompt"),))
    if not isinstance(value, list) or not value:
        raise ValueError(f'"{kinds[0]}" must be a list that is not empty, got {json.dumps(value)[:60]}')
    if kinds[0] == "turns":
        return Question(tuple(_text(turn, "turns") for turn in value))
    messages = [_message(message) for message in value]
    if messages[-1]["role"] != "user":
        raise ValueError(f'the last message must be the user\'s, got role "{messages[-1]["role"]}"')
    return Question((messages[-1]["content"],), tuple(messages[:-1]))


def _message(message: Any) -> Message:
    if not isinstance(message, dict) or message.keys() != {"role", "content"}:
        raise ValueError(f'a message has "role" and "content", got {json.dumps(message)[:60]}')
    return {"role": _text(message["role"], "role"), "content": _text(joined_parts(message["content"]), "content")}


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f'"{key}" must hold text that is not empty, got {json.dumps(value)[:60]}')
    return value

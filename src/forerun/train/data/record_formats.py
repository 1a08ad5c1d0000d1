"""Common formats of training data, recognised by their keys.

A line with the keys of several formats is read as the first of KNOWN. Of a conversation the last answer is learnt, and
everything before it is the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...engine.prompts.chat import joined_parts
from ...errors import UnsupportedOption

KNOWN = (
    '"prompt_ids" and "answer_ids"',
    '"messages" (or ShareGPT\'s "conversations") that end with the assistant\'s',
    '"instruction" and "output", "input" beside them if there is one (Alpaca)',
    '"prompt" and "completion" (TRL)',
    '"prompt" and "answer"',
    '"text"',
)
ROLES = ("system", "developer", "user", "assistant", "tool")
SPEAKERS = {
    **{role: role for role in ROLES},
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "observation": "tool",
}
# Taori et al., Stanford Alpaca, 2023: what a model without a chat template is tuned on
ALPACA = (
    "Below is an instruction that describes a task{paired}. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n{given}### Response:\n"
)
PAIRED, GIVEN = ", paired with an input that provides further context", "### Input:\n{input}\n\n"

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ids:
    """Token ids as they are."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages for a chat template; the last one is the assistant's, with text."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """Text that continues a text, without a template."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text of which every token is learnt."""

    text: str


Record = Ids | Chat | Completion | Text


def record_of(entry: Mapping[str, Any], chat: bool) -> Record:
    """What an entry holds. chat: whether there is a chat template. Raises ValueError that says what is wrong with it."""
    for keys, read in _READERS:
        if all(key in entry for key in keys):
            if entry.get("tools"):
                raise ValueError('"tools" can\'t be learnt from; leave lines that call tools out')
            return read(entry, chat)
    raise ValueError(f"a line has {', or '.join(KNOWN)}; got {', '.join(map(repr, entry)) or 'an empty object'}")


def _of_ids(entry: Mapping[str, Any], chat: bool) -> Record:
    return Ids(_ids(entry["prompt_ids"]), _ids(entry["answer_ids"]))


def _of_messages(entry: Mapping[str, Any], chat: bool) -> Record:
    return _chat(_messages(entry["messages"], "messages"), chat)


def _of_conversations(entry: Mapping[str, Any], chat: bool) -> Record:
    return _chat([*_system(entry), *_messages(entry["conversations"], "conversations")], chat)


def _of_instruction(entry: Mapping[str, Any], chat: bool) -> Record:
    asked, said = text_of(entry, "instruction"), text_of(entry, "output")
    given = text_of(entry, "input", empty=True) if entry.get("input") is not None else ""
    if chat:
        asked = f"{asked}\n\n{given}" if given else asked
        return _chat([*_system(entry), *_history(entry), _user(asked), _assistant(said)], chat)
    if entry.get("system") or entry.get("history"):
        raise ValueError('"system" and "history" need a chat template, and this tokenizer has none')
    paired, shown = (PAIRED, GIVEN.format(input=given)) if given else ("", "")
    return Completion(ALPACA.format(paired=paired, instruction=asked, given=shown), said)


def _of_completion(entry: Mapping[str, Any], chat: bool) -> Record:
    prompt, completion = entry["prompt"], entry["completion"]
    if isinstance(prompt, list) and isinstance(completion, list):
        return _chat([*_messages(prompt, "prompt"), *_messages(completion, "completion")], chat)
    if isinstance(prompt, list) or isinstance(completion, list):
        raise ValueError('"prompt" and "completion" must both be text, or both lists of messages')
    return Completion(text_of(entry, "prompt"), text_of(entry, "completion"))


def _of_answer(entry: Mapping[str, Any], chat: bool) -> Record:
    asked, said = text_of(entry, "prompt"), text_of(entry, "answer")
    return Chat((_user(asked), _assistant(said))) if chat else Completion(asked, said)


def _of_text(entry: Mapping[str, Any], chat: bool) -> Record:
    return Text(text_of(entry, "text"))


_READERS: tuple[tuple[tuple[str, ...], Callable[[Mapping[str, Any], bool], Record]], ...] = (
    (("prompt_ids", "answer_ids"), _of_ids),
    (("messages",), _of_messages),
    (("conversations",), _of_conversations),
    (("instruction", "output"), _of_instruction),
    (("prompt", "completion"), _of_completion),
    (("prompt", "answer"), _of_answer),
    (("text",), _of_text),
)


def _chat(messages: list[Message], chat: bool) -> Chat:
    last = messages[-1]
    if last["role"] != "assistant":
        raise ValueError(f"the last message must be the assistant's, which is learnt; it is of role {last['role']!r}")
    if not last["content"].strip():
        raise ValueError("the last message, which is learnt, must hold text that is not empty")
    if not chat:
        raise UnsupportedOption('this tokenizer has no chat template; use "prompt" and "answer"')
    if len(messages) < 2:
        raise ValueError("an answer alone can't be learnt: a message before it is needed")
    return Chat(tuple(messages))


def _messages(value: Any, key: str) -> list[Message]:
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        raise ValueError(f'"{key}" must be a list of objects with "role" and "content" that is not empty')
    return [_message(one, number) for number, one in enumerate(value, start=1)]


def _message(message: Mapping[str, Any], number: int) -> Message:
    """As a template takes it, with whatever else the message says, such as what was thought before the answer."""
    shared = "from" in message and "role" not in message
    role, content = message.get("from" if shared else "role"), message.get("value" if shared else "content")
    known = SPEAKERS if shared else ROLES
    if not isinstance(role, str) or role not in known:
        what = "no role" if role is None else f"the role {role!r}"
        raise ValueError(f"message {number} has {what}; known: {', '.join(known)}")
    content = joined_parts(content)
    if content is None:
        calls = ": it calls a tool, which can't be learnt from" if message.get("tool_calls") else ""
        raise ValueError(f"message {number}, of role {role!r}, has no content{calls}")
    if not isinstance(content, str):
        raise ValueError(f"message {number} must hold text as its content, got {type(content).__name__}")
    others = {key: value for key, value in message.items() if key not in ("from", "value")}
    return {**others, "role": SPEAKERS[role], "content": content}


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _system(entry: Mapping[str, Any]) -> list[Message]:
    return [{"role": "system", "content": text_of(entry, "system")}] if entry.get("system") else []


def _history(entry: Mapping[str, Any]) -> list[Message]:
    history = entry.get("history") or []
    if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        raise ValueError('"history" must be a list of pairs: what was asked, and the answer')
    found: list[Message] = []
    for asked, said in history:
        if not isinstance(asked, str) or not isinstance(said, str):
            raise ValueError('"history" must hold pairs of texts')
        found += [_user(asked), _assistant(said)]
    return found


def text_of(entry: Mapping[str, Any], key: str, empty: bool = False) -> str:
    value = entry[key]
    if not isinstance(value, str) or not (value or empty):
        raise ValueError(f'"{key}" must hold text{"" if empty else " that is not empty"}, got {type(value).__name__}')
    return value


def _ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise ValueError("token ids must be a list of whole numbers from 0 on")
    return tuple(value)

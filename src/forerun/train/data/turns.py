"""Where an answer begins in a chat template's tokens, and the token that ends it.

A model's chat template says how a turn ends, and often not with the tokenizer's end of sequence: Gemma's <end_of_turn>,
Llama 3's <|eot_id|>, Qwen's <|im_end|>. So the end is read from the rendered conversation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...engine.prompts.chat import template_failure
from ...errors import UnsupportedOption

MARK = "\u2063forerun\u2063"


def rendered(tokenizer: Any, messages: Sequence[Mapping[str, Any]], begin_answer: bool = False) -> str:
    """The conversation as the chat template writes it. Raises ValueError where the template refuses it."""
    try:
        return str(tokenizer.apply_chat_template(list(messages), add_generation_prompt=begin_answer, tokenize=False))
    except Exception as error:  # a template is a program of its own, and raises what it likes
        raise ValueError(template_failure(error)) from error


def answered(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], eos: Collection[int]
) -> tuple[list[int], list[int]]:
    """Token ids of what comes before the last message's text, and of that text with the end of its turn.

    eos: where decoding stops. Raises ValueError where the template refuses the messages.
    """
    *before, last = messages
    marked, mark, after = rendered(tokenizer, [*before, {**last, "content": MARK}]).rpartition(MARK)
    if not mark:
        raise UnsupportedOption(
            'this chat template doesn\'t show what the assistant says; use "prompt" and "completion"'
        )
    prompt = _opening(tokenizer, before, marked)
    tail, place = _end(tokenizer, after, eos)
    end = end_of_sequence(tokenizer, eos) if place is None else tail[place]
    content = _without_end(last["content"], None if end is None else tokenizer.convert_ids_to_tokens(end))
    whole = rendered(tokenizer, [*before, {**last, "content": content}])
    prompt, said = _said(prompt, whole, after, content)
    if place is None:
        ids, learnt = split_ids(tokenizer, prompt, said, special=False)
        return ids, ended(learnt, end)
    ids, learnt = split_ids(tokenizer, prompt, said + after, special=False)
    rest = tail[place:]
    if learnt[-len(rest) :] == rest:
        learnt = learnt[: len(learnt) - len(rest)]
    else:
        learnt = [*plain_ids(tokenizer, said), *tail[:place]]
    return ids, ended(learnt, end)


def turn_end(tokenizer: Any, eos: Collection[int]) -> int | None:
    """The token with which the chat template ends an assistant's turn; None where it writes none, or no such chat."""
    asked = {"role": "user", "content": "?"}
    try:
        after = rendered(tokenizer, [asked, {"role": "assistant", "content": MARK}]).rpartition(MARK)[2]
    except ValueError:
        return None
    tail, end = _end(tokenizer, after, eos)
    return None if end is None else tail[end]


def split_ids(tokenizer: Any, prompt: str, answer: str, special: bool) -> tuple[list[int], list[int]]:
    """Token ids of a prompt, and of the answer as it goes on from there.

    special: with the tokens that the tokenizer adds to a text. The ids are those of the whole text where it begins with the
    prompt's.
    """
    encoded = encoded_text if special else plain_ids
    ids, whole = encoded(tokenizer, prompt), encoded(tokenizer, prompt + answer)
    if whole[: len(ids)] == ids:
        return ids, whole[len(ids) :]
    return ids, plain_ids(tokenizer, answer)


def plain_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text alone, without what the tokenizer adds to one; none of an empty text."""
    ids: list[int] = list(tokenizer(text, add_special_tokens=False).input_ids) if text else []
    return ids


def encoded_text(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text; what it begins or ends with itself, the tokenizer doesn't put there a second time."""
    ids: list[int] = list(tokenizer(text).input_ids)
    own = plain_ids(tokenizer, text)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if bos is not None and own[:1] == [bos] and ids[:2] == [bos, bos] and ids != own:
        ids = ids[1:]
    if eos is not None and own[-1:] == [eos] and ids[-2:] == [eos, eos] and ids != own:
        ids = ids[:-1]
    return ids


def ended(ids: Sequence[int], end: int | None) -> list[int]:
    """The ids with the end after them, once, even where the text ends with it already."""
    found = list(ids)
    if end is None:
        return found
    while found and found[-1] == end:
        found.pop()
    return [*found, end]


def end_of_sequence(tokenizer: Any, eos: Collection[int]) -> int | None:
    """What ends an answer that no template ends: the tokenizer's own, or the only one that decoding stops at."""
    if tokenizer.eos_token_id is not None:
        return int(tokenizer.eos_token_id)
    return next(iter(eos)) if len(eos) == 1 else None


def _opening(tokenizer: Any, before: Sequence[Mapping[str, Any]], marked: str) -> str:
    """The prompt's text. Where the template can't begin an answer, what it writes before one is the prompt's too."""
    prompt = rendered(tokenizer, before, begin_answer=True)
    more = marked.removeprefix(prompt) if marked.startswith(prompt) else ""
    # a blank at the end is left to the answer, whose first token has it
    return prompt + more.rstrip(" ") if more.strip() and prompt == rendered(tokenizer, before) else prompt


def _said(prompt: str, whole: str, after: str, content: str) -> tuple[str, str]:
    """The text before the answer, and the answer as the template writes it.

    An answer of which the template would drop a part, such as what was thought, is taken as the model wrote it.
    """
    if whole.endswith(after):
        known = _shared(prompt, whole)
        if known < len(prompt):
            # the template begins an answer in another way than it shows one; only what both have is the prompt
            at = whole.find(content.strip(), max(0, known - len(content)))
            known = known if at < 0 else min(known, at)
        said = whole[known : len(whole) - len(after)]
        if _squeezed(content) in _squeezed(said):
            return whole[:known], said
    return prompt, _without_beginning(content, prompt)


def _without_end(content: str, end: str | None) -> str:
    """The content without the end of the turn that it brings itself."""
    while end is not None and content.rstrip().endswith(end):
        content = content.rstrip().removesuffix(end)
    return content


def _without_beginning(content: str, prompt: str) -> str:
    """The content without what the prompt ends with already, such as a tag that opens the thinking."""
    text = content.lstrip()
    opened = re.search(r"(<[^<>\s]+>)\s*$", prompt)
    return text.removeprefix(opened[1]).lstrip("\n") if opened and text.startswith(opened[1]) else content


def _shared(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    if other.startswith(one):
        return len(one)
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _end(tokenizer: Any, after: str, eos: Collection[int]) -> tuple[list[int], int | None]:
    """The ids of what follows the text of an answer, and which of them ends the turn.

    The first that decoding stops at, or else the first token that is no text.
    """
    tail = plain_ids(tokenizer, after)
    stops = set(eos) or {tokenizer.eos_token_id}
    for ends in (stops, set(tokenizer.added_tokens_decoder)):
        for place, token in enumerate(tail):
            if token in ends:
                return tail, place
    return tail, None

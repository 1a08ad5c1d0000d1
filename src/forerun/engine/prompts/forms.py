"""What may be handed in as a prompt: text, chat messages, token ids, or several of any of these.

Ids come as a list, a tensor, an array, or as a tokenizer gives them, with their mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ...errors import UnsupportedOption
from ...models.loading.padding import Padding
from .chat import check_text, encode_messages
from .padded import refuse_possible, unmasked, without_padding
from .token_ids import all_zero, ids_of, is_id, listed, mask_of

EMPTY = "the prompt is empty; give at least one token"
NO_PADDING = Padding()
IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"


def is_many(prompt: Any) -> bool:
    """Whether these are several prompts, be it only one in a list. Raises ValueError on what can be no prompt."""
    if isinstance(prompt, str):
        return False
    if isinstance(prompt, Mapping):
        return is_many(_held(prompt)[0])
    if isinstance(prompt, Tensor | np.ndarray):
        if not 1 <= prompt.ndim <= 2:
            raise ValueError(f"token ids are one row [n] or a batch [B, n], got a shape of {list(prompt.shape)}")
        if 0 in prompt.shape:
            raise ValueError(EMPTY)
        return prompt.ndim == 2 or is_many(prompt.tolist())
    if isinstance(prompt, bytes | bytearray | memoryview):
        raise ValueError(f"a prompt is text and no {type(prompt).__name__}; decode it first")
    if not isinstance(prompt, Sequence):
        raise ValueError(f"a prompt is text, messages, token ids or a list of these, got {type(prompt).__name__}")
    if len(prompt) == 0:
        raise ValueError(EMPTY)
    return not is_id(prompt[0]) and not _is_message(prompt[0])


def split(prompts: Any, padding: Padding = NO_PADDING) -> list[Any]:
    """Several prompts, apart; rows of ids without what fills them up.

    A tensor without a mask is read as transformers' generate reads it; a list of rows tells their lengths by itself. Raises
    UnsupportedOption where a row holds what may be padding or text, ValueError on a mask that doesn't fit.
    """
    if isinstance(prompts, Mapping):
        ids, mask = _held(prompts)
        if mask is None:
            return split(ids, padding)
        rows, masks = listed(ids), mask_of(mask)
        if len(rows) != len(masks):
            raise ValueError(f"an attention mask of {len(masks)} rows for ids of {len(rows)}")
        return [unmasked(ids_of(row), mask_of(masks[n]), n) for n, row in enumerate(rows)]
    if isinstance(prompts, Tensor | np.ndarray):
        if prompts.ndim == 1:
            return list(prompts.tolist())
        return without_padding([ids_of(row) for row in prompts.tolist()], padding)
    if len(prompts) > 1 and all(isinstance(row, list | tuple) and row and is_id(row[0]) for row in prompts):
        rows = [ids_of(row) for row in prompts]
        if len({len(row) for row in rows}) == 1:
            refuse_possible(rows, padding.ids)
    return list(prompts)


def encode(prompt: Any, tokenizer: Any | None, padding: Padding = NO_PADDING) -> list[int]:
    """Token ids of one prompt; messages go through the tokenizer's chat template.

    Raises ValueError on what is no prompt, or an empty one, UnsupportedOption where a tokenizer or a chat template is
    missing or refuses.
    """
    if isinstance(prompt, str):
        ids = list(_need(tokenizer, "a text prompt")(check_text(prompt, "the prompt")).input_ids)
    elif is_many(prompt):
        ids = encode(_only(prompt, padding), tokenizer)
    elif isinstance(prompt, Mapping):
        held, mask = _held(prompt)
        ids = ids_of(held) if mask is None else unmasked(ids_of(held), mask_of(mask), 0)
    elif _is_message(prompt[0]):
        ids = encode_messages(prompt, _need(tokenizer, "messages"))
    else:
        ids = ids_of(prompt)
    if not ids:
        raise ValueError(EMPTY)
    return ids


def _only(prompts: Any, padding: Padding) -> Any:
    """The row of a tensor, an array or a mapping that holds but one."""
    if isinstance(prompts, Sequence):
        raise ValueError("a list of prompts is in the place of one prompt; give all prompts in one flat list")
    rows = split(prompts, padding)
    if len(rows) != 1:
        raise ValueError(f"a batch of {len(rows)} prompts is in the place of one; give its rows one by one")
    return rows[0]


def _held(prompt: Mapping[str, Any]) -> tuple[Any, Any | None]:
    """The ids and the mask of what a tokenizer gave. Segments that are all 0 say nothing, and text has no other."""
    if IDS not in prompt:
        raise ValueError(f"a mapping must hold {IDS!r}, got {', '.join(map(repr, prompt))}; messages go into a list")
    for key, value in prompt.items():
        silent = value is None or key in (IDS, MASK) or (key == SEGMENTS and all_zero(value))
        if not silent:
            raise UnsupportedOption(f"a prompt is {IDS} with an {MASK}; leave {key!r} out")
    return prompt[IDS], prompt.get(MASK)


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and IDS not in value


def _need(tokenizer: Any | None, what: str) -> Any:
    if tokenizer is None:
        raise UnsupportedOption(f"{what} needs a tokenizer; load the model with one or hand in token ids")
    return tokenizer

"""Decodes tokens one at a time into the text that the tokenizer gives for all of them, without broken characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, final

from tokenizers import Tokenizer, decoders
from transformers import PreTrainedTokenizerFast

from .stops import StopScanner

BROKEN = "\ufffd"
BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


def backend_of(tokenizer: Any) -> Tokenizer | None:
    """What this tokenizer's decode comes down to without cleaning up, None for one that does more.

    transformers' way there looks at every token again, which takes longer than the decoding.
    """
    kind = type(tokenizer)
    if not issubclass(kind, PreTrainedTokenizerFast):
        return None
    own = (kind.decode, kind._decode, kind.convert_ids_to_tokens)
    base = PreTrainedTokenizerFast
    if own != (base.decode, base._decode, base.convert_ids_to_tokens):
        return None
    backend: Tokenizer = tokenizer.backend_tokenizer
    return backend


def joins(backend: Tokenizer) -> bool:
    """Whether a text is its tokens' bytes one after the other: a token of whole characters is text by itself."""
    return isinstance(backend.decoder, decoders.ByteLevel)


@final
class Detokenizer:
    """Text of a growing list of tokens. Released text never changes; the last characters wait until they are certain.

    pending is their current form. Special tokens leave no text unless they are kept, or among those that are shown.
    """

    def __init__(self, tokenizer: Any, keep_special: bool = False, shown: Sequence[str] = ()) -> None:
        self.pending = ""
        self._fast = backend_of(tokenizer)
        self._joins = self._fast is not None and joins(self._fast)
        self._tokenizer = tokenizer
        self._skip = not (keep_special or shown)
        hidden = [token for token in special_tokens(tokenizer) if token not in shown] if shown else []
        self._hidden = frozenset(tokenizer.convert_tokens_to_ids(hidden))
        self._ids: list[int] = []  # some released ones, as context, and the pending ones
        self._released = 0  # how many of the ids
        self._known = ""  # their text

    def push(self, token: int) -> str:
        """The text that this token makes certain, "" while a character is still incomplete."""
        if token in self._hidden:
            return ""
        if self._joins and self._released == len(self._ids):
            own = self._decode([token])
            if own and BROKEN not in own:
                self._ids, self._released, self._known = [token], 1, own
                return own
        self._ids.append(token)
        whole = self._decode(self._ids)
        fresh = whole[len(self._known) :]
        if fresh == self.pending and self._leaves_no_text(token):
            self._ids.pop()
            return ""
        self.pending = fresh
        # tokens of single bytes are decoded together: one that is wrong breaks all of its neighbours
        if fresh.endswith(BROKEN) or BYTE.fullmatch(self._name(token) or ""):
            return ""
        # some tokenizers drop the blanks that a text begins with, so the context needs a token that shows
        context = self._decode(self._ids[self._released :])
        if context:
            del self._ids[: self._released]
        self._known = context or whole
        self._released = len(self._ids)
        self.pending = ""
        return fresh

    def flush(self) -> str:
        """What is left at the end, broken or not."""
        rest, self.pending = self.pending, ""
        self._known += rest
        self._released = len(self._ids)
        return rest

    def _name(self, token: int) -> str | None:
        """The token's string, if it has one."""
        if self._fast is not None:
            return self._fast.id_to_token(token)
        name: str | None = self._tokenizer.convert_ids_to_tokens(token)
        return name

    def _leaves_no_text(self, token: int) -> bool:
        """Whether decoding skips this token, as if it weren't there."""
        return self._skip and not self._decode([token]) and bool(self._decode([token], skip=False))

    def _decode(self, ids: list[int], skip: bool | None = None) -> str:
        skip = self._skip if skip is None else skip
        if self._fast is not None:
            return self._fast.decode(ids, skip_special_tokens=skip)
        text: str = self._tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        return text


@final
class TextStream:
    """The text of growing tokens up to the first stop string, which is `found` once it is complete.

    A stop string that holds a special token is looked for in the text with special tokens, which the shown text leaves out
    but for those in `shown`.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = (), shown: Sequence[str] = ()) -> None:
        special = special_tokens(tokenizer) if stop else ()
        marked = [text for text in stop if any(token in text for token in special)]
        self._scanner = StopScanner([text for text in stop if text not in marked], marked)
        self._shown = Detokenizer(tokenizer, shown=shown)
        self._marked = Detokenizer(tokenizer, keep_special=True) if marked else None

    @property
    def found(self) -> str | None:
        return self._scanner.found

    def push(self, token: int) -> str:
        """The text that this token makes certain and safe to show."""
        shown = self._shown.push(token)
        if not self._scanner.looks:
            return shown
        unsure = self._shown.pending.rstrip(BROKEN)
        if self._marked is None:
            return self._scanner.push(shown, unsure=unsure)
        marked = self._marked.push(token)
        return self._scanner.push(shown, marked, unsure, self._marked.pending.rstrip(BROKEN))

    def flush(self) -> str:
        """The rest of the text, where no stop string was found."""
        if self.found is not None:
            return ""
        rest = self._scanner.push(self._shown.flush(), "" if self._marked is None else self._marked.flush())
        return rest + self._scanner.flush()


def special_tokens(tokenizer: Any) -> tuple[str, ...]:
    """The strings of the tokens that decoding may skip."""
    added = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return tuple(token for token in dict.fromkeys([*tokenizer.all_special_tokens, *added]) if token)

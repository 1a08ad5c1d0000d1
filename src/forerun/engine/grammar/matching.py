"""A grammar's state along a text, by llguidance.

Where the grammar leaves a text no choice, llguidance allows only the tokens that the tokenizer would take for it.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Series
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from ...core.constraint import Constraint
from ...errors import UnsupportedOption

LONGEST_FORCED = 64  # tokens of one draft


@final
class Matching(Constraint):
    """begin: the compiled grammar, which stays as it is. closing: llguidance's own ends of a text; ends: the model's."""

    def __init__(self, begin: Any, closing: Series[int], vocab_size: int, ends: Collection[int]) -> None:
        self.complete = False
        self._begin = begin
        self._matcher = begin.deep_copy()
        self._emitted: list[int] = []
        self._here: tuple[int, ...] = ()  # the tokens after the emitted ones that the matcher has read
        self._ends = sorted(end for end in ends if end < vocab_size)
        self._never = sorted({*closing, *ends})
        self._size = vocab_size
        self._words = np.zeros((vocab_size + 31) // 32, np.int32)
        self._masks: dict[tuple[int, ...], Tensor | None] = {}

    def allowed(self, drafted: tuple[int, ...]) -> Tensor | None:
        try:
            return self._masks[drafted]
        except KeyError:
            mask = self._masks[drafted] = self._mask() if self._stands_after(drafted) else None
            return mask

    def permits(self, drafted: tuple[int, ...], token: int) -> bool:
        if drafted in self._masks or not self._stands_after(drafted) or self._matcher.compute_ff_bytes():
            mask = self.allowed(drafted)
            return mask is not None and 0 <= token < self._size and bool(mask[token])
        if token in self._never:
            return token in self._ends and bool(self._matcher.is_accepting())
        return 0 <= token < self._size and bool(self._matcher.validate_tokens([token]) == 1)

    def completes(self, drafted: tuple[int, ...]) -> bool:
        if not self._stands_after(drafted) or not self._matcher.is_accepting():
            return False
        if self._matcher.is_stopped():
            return True
        mask = self.allowed(drafted)
        return mask is None or int(mask.count_nonzero()) == len(self._ends)

    def forced(self, room: int) -> tuple[int, ...]:
        if room <= 0 or not self._stands_after(()) or not self._matcher.compute_ff_bytes():
            return ()
        return tuple(self._matcher.compute_ff_tokens()[: min(room, LONGEST_FORCED)])

    def emit(self, tokens: Series[int]) -> None:
        tokens = tuple(tokens)
        self.complete = self.completes(tokens) or not self._stands_after(tokens)
        self._masks = {path[len(tokens) :]: mask for path, mask in self._masks.items() if path[: len(tokens)] == tokens}
        self._emitted += tokens
        self._here = ()

    def _stands_after(self, drafted: tuple[int, ...]) -> bool:
        """Bring the matcher there; False where the text has ended before, or isn't of the grammar."""
        here = self._here
        if here == drafted:
            return not self.complete
        shared = 0
        while shared < min(len(here), len(drafted)) and here[shared] == drafted[shared]:
            shared += 1
        if shared < len(here):
            self._go_back(len(here) - shared)
        for token in drafted[shared:]:
            if token in self._never or not self._matcher.try_consume_tokens([token]):
                self._check()
                break
            shared += 1
        self._here = drafted[:shared]
        return shared == len(drafted) and not self.complete

    def _go_back(self, count: int) -> None:
        if self._matcher.rollback(count):
            return
        # lexemes with max_tokens or stop can't be taken back: read the text again
        self._matcher = self._begin.deep_copy()
        text = [*self._emitted, *self._here[: len(self._here) - count]]
        self._matcher.try_consume_tokens(text)
        self._check()

    def _mask(self) -> Tensor | None:
        """None where the text is complete and has no end of sequence."""
        words = self._words
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self._check()
        mask = np.unpackbits(words.view(np.uint8), count=self._size, bitorder="little").view(np.bool_)
        mask[[token for token in self._never if token < self._size]] = False
        if self._matcher.is_accepting():
            mask[self._ends] = True
            if not self._ends and not mask.any():
                return None
        return torch.from_numpy(mask)

    def _check(self) -> None:
        """Raises UnsupportedOption where the grammar exceeds llguidance's limits on this text."""
        if self._matcher.is_error():
            raise UnsupportedOption(
                f"the grammar can't be followed any further: {self._matcher.get_error().splitlines()[0]}"
            )

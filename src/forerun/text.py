"""From tokens to text, one at a time: no broken characters, and stop strings as if tokens came singly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

BROKEN = "\ufffd"


@final
class Detokenizer:
    """Text of a growing list of tokens. What it released stays; the last characters wait until they are whole."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._context = 0
        self._done = 0

    def push(self, token: int) -> str:
        """The text that this token makes certain, "" while a character is still incomplete."""
        self._ids.append(token)
        text = self._fresh()
        if text.endswith(BROKEN):
            return ""
        self._context, self._done = self._done, len(self._ids)
        return text

    def flush(self) -> str:
        """What is left at the end, broken or not."""
        text = self._fresh()
        self._context = self._done = len(self._ids)
        return text

    def _fresh(self) -> str:
        # a few tokens of context, because some tokenizers drop the blank in front of the first token they are given
        known = self._decode(self._ids[self._context : self._done])
        return self._decode(self._ids[self._context :])[len(known) :]

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


@final
class StopScanner:
    """Finds the first completed stop string in growing text, and holds back what may become one."""

    def __init__(self, stop: Sequence[str]) -> None:
        if any(not text for text in stop):
            raise ValueError("a stop string must not be empty")
        self._stop = tuple(stop)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """The text that is safe to show. Once `found` is set, everything from the stop string on is gone."""
        self._held += text
        starts = [(self._held.find(stop), stop) for stop in self._stop if stop in self._held]
        if starts:
            # the earliest completion wins; of two that end together, the longer
            start, self.found = min(starts, key=lambda found: (found[0] + len(found[1]), found[0]))
            shown, self._held = self._held[:start], ""
            return shown
        safe = len(self._held) - self._possible_start()
        shown, self._held = self._held[:safe], self._held[safe:]
        return shown

    def flush(self) -> str:
        shown, self._held = self._held, ""
        return shown

    def _possible_start(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stop):
                return size
        return 0

"""From the text of an answer to what a chat's message is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

Delta = dict[str, Any]


class Deltas(ABC):
    """One answer's text, as it comes, in a message's parts."""

    @abstractmethod
    def push(self, text: str) -> list[Delta]:
        """What this piece of text adds, as choices[].delta has it; nothing where more text must be seen first."""

    @abstractmethod
    def end(self) -> list[Delta]:
        """What is left at the end of the text."""

    @abstractmethod
    def message(self) -> dict[str, Any]:
        """The whole message, after the end."""

    def finish_reason(self, reason: str) -> str:
        """The reason to tell, given why the text ended."""
        return reason


@final
class PlainText(Deltas):
    """The text is the message's content."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def push(self, text: str) -> list[Delta]:
        self._texts.append(text)
        return [{"content": text}] if text else []

    def end(self) -> list[Delta]:
        return []

    def message(self) -> dict[str, Any]:
        return {"role": "assistant", "content": "".join(self._texts), "refusal": None}

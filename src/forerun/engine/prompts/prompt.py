"""The types of prompts, for callers' annotations. forms.py reads what they describe; nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Union

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


class Encoding(Protocol):
    """Token ids with their mask, as a transformers tokenizer gives them (BatchEncoding)."""

    @property
    def is_fast(self) -> bool: ...

    def __getitem__(self, key: str, /) -> Any: ...


# "role" and "content", with what else the chat template reads
Message = Mapping[str, object]
# text, a chat or token ids: one prompt for certain
SinglePrompt = str | Sequence[Message] | Sequence[int]
# one prompt or a batch of them, which their types don't tell
TokenRows = Union["Tensor", "NDArray[np.integer[Any]]", Mapping[str, object]]
Prompt = SinglePrompt | TokenRows
Prompts = Sequence[Union[SinglePrompt, "Tensor", "NDArray[np.integer[Any]]", Encoding]]

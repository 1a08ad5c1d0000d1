"""How a hook gets the tokenizer of a generate call.

transformers takes the tokenizer out of a call's arguments and drops it for every callable (5.24, GenerationMixin.
_extract_generation_mode_kwargs), so that stop_strings and token_healing find none. Right after that it asks the callable
for its signature, and hands over whatever argument is named there: the tokenizer is put back at that moment.
"""

from __future__ import annotations

from inspect import Signature, currentframe, signature
from typing import Any, final


@final
class HookSignature:
    """The __signature__ of a hook, which has a parameter tokenizer, and one of its own for calls that come without."""

    def __get__(self, hook: Any, owner: type) -> Signature:
        if hook is None:
            raise AttributeError("a class has no signature but that of __init__")
        _put_back(hook.tokenizer)
        return signature(owner.__call__.__get__(hook, owner))


def _put_back(own: Any | None) -> None:
    frame = currentframe()
    while frame is not None:
        named = (frame.f_code.co_name, frame.f_globals.get("__name__"))
        if named == ("_extract_generation_mode_kwargs", "transformers.generation.utils"):
            given = frame.f_locals["generation_mode_kwargs"].get("tokenizer", own)
            if given is not None:
                frame.f_locals["kwargs"]["tokenizer"] = given
            return
        frame = frame.f_back

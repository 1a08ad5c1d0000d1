"""The forms in which models write calls, and which of them a chat template asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import UnsupportedOption
from ..text import special_tokens
from .bodies import ARGS, CALL_ID, PYTHON_TAG, Sink, bare, listed_or_named, tagged
from .characters import Characters, Reading


@dataclass(frozen=True, slots=True)
class ToolForm:
    """How one kind of models writes calls.

    opening: what stands before a call; "" where an answer is either nothing but calls, or text. marks: what the form may be
    read by. id_length: how long the template wants ids of calls to be, 0 for any length.
    """

    name: str
    opening: str
    body: Callable[[Characters, Sink], Reading[None]]
    marks: tuple[str, ...]
    id_length: int = 0

    def hidden_marks(self, tokenizer: Any) -> tuple[str, ...]:
        """The marks that are special tokens, which text leaves out unless they are asked for."""
        special = special_tokens(tokenizer)
        return tuple(mark for mark in self.marks if mark in special)


HERMES = ToolForm("hermes", "<tool_call>", tagged, ("<tool_call>", "</tool_call>"))
LLAMA = ToolForm("llama3_json", "", bare, (PYTHON_TAG,))
MISTRAL = ToolForm("mistral", "[TOOL_CALLS]", listed_or_named, ("[TOOL_CALLS]", CALL_ID, ARGS), id_length=9)
# what other models write between the same tags
OTHERS_IN_TAGS = ("<function=", "<arg_key>", "<parameter=")


def form_of(template: str) -> ToolForm:
    """The form that a chat template asks for. Raises UnsupportedOption where it takes no tools, or wants an unknown form."""
    if "tools" not in template:
        raise UnsupportedOption(
            "this model's chat template takes no tools; leave tools out, or take a model made for them"
        )
    if HERMES.opening in template and not any(other in template for other in OTHERS_IN_TAGS):
        return HERMES
    if MISTRAL.opening in template:
        return MISTRAL
    if '"parameters": ' in template.replace('\\"', '"') and "function name" in template:
        return LLAMA
    raise UnsupportedOption(
        "this model's chat template takes tools, and asks for calls in a form that isn't known here; known: Hermes and Qwen "
        "(<tool_call> with JSON), Llama 3 (JSON with name and parameters), Mistral ([TOOL_CALLS])"
    )


def template_of(tokenizer: Any) -> str:
    """The source of the chat template that tools go through. Raises UnsupportedOption where there is none."""
    if not getattr(tokenizer, "chat_template", None):
        raise UnsupportedOption("this tokenizer has no chat template, so it can't take tools; leave tools out")
    return str(tokenizer.get_chat_template(tools=[{}]))

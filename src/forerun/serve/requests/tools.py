"""The functions that a chat offers, and how its model writes their calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...engine.tool_calls.forms import LLAMA, ToolForm, form_of, template_of
from ...engine.tool_calls.tools import Tools, tools_of
from ..refusal import invalid
from .chat import ChatRequest


@dataclass(frozen=True, slots=True)
class Offer:
    """marks: special tokens that the text must hold for calls to be seen. parallel: an answer may have several calls."""

    tools: Tools
    form: ToolForm
    marks: tuple[str, ...]
    parallel: bool


def offer_of(chat: ChatRequest, tokenizer: Any) -> Offer | None:
    """None where nothing may be called. Raises Refusal on tools that are no good, or that this model can't take."""
    tools = chosen_tools(chat)
    if tools is None:
        if chat.parallel_tool_calls is not None and not chat.tools:
            raise invalid("parallel_tool_calls needs tools", "parallel_tool_calls")
        return None
    try:
        form = form_of(template_of(tokenizer))
    except ValueError as error:
        raise invalid(str(error), "tools") from error
    if tools.must:  # the text is a call as a grammar has it, whatever the model's own form is
        return Offer(tools, replace(LLAMA, id_length=form.id_length), (), parallel=False)
    return Offer(tools, form, form.hidden_marks(tokenizer), chat.parallel_tool_calls is not False)


def chosen_tools(chat: ChatRequest) -> Tools | None:
    """Raises Refusal that names the field."""
    try:
        return tools_of(chat.tools, chat.tool_choice)
    except ValueError as error:
        raise invalid(str(error), "tool_choice" if str(error).startswith("tool_choice") else "tools") from error

"""Which form a model writes calls in is read off its chat template."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.engine.tool_calls.forms import HERMES, LLAMA, MISTRAL, form_of, template_of
from forerun.errors import UnsupportedOption
from forerun.testing import CHAT_TEMPLATE, tiny_tokenizer

# what templates of well-known models say to the model, and how they write calls that were made
QWEN = """{%- if tools %}For each function call, return a json object with function name and arguments within
<tool_call></tool_call> XML tags:\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}
{% endif %}"""
LLAMA_3 = """{%- if tools is not none %}{{- 'Respond in the format {"name": function name, "parameters": dictionary of
argument name and its value}.' }}{% endif %}{{- "<|python_tag|>" }}"""
MISTRAL_3 = """{%- if tools %}{{ "[AVAILABLE_TOOLS]" }}{% endif %}{{- "[TOOL_CALLS] [" }}"""
QWEN_CODER = """{%- if tools %}<tool_call>\\n<function=example>\\n<parameter=one>{% endif %}"""
PYTHONIC = """{%- if tools %}Call a function as [name(argument=value)].{% endif %}"""


def tokenizer(template: Any, *special: str) -> Any:
    made = tiny_tokenizer()
    made.add_special_tokens({"extra_special_tokens": list(special)})
    made.chat_template = template
    return made


@pytest.mark.parametrize(
    ("template", "form"), [(QWEN, HERMES), (LLAMA_3, LLAMA), (MISTRAL_3, MISTRAL)], ids=["qwen", "llama", "mistral"]
)
def test_a_form_is_told_by_the_template(template: str, form: Any) -> None:
    assert form_of(template) is form


@pytest.mark.parametrize("template", [QWEN_CODER, PYTHONIC])
def test_another_form_is_refused_with_those_that_are_known(template: str) -> None:
    with pytest.raises(UnsupportedOption, match=r"known: Hermes and Qwen .*Llama 3 .*Mistral"):
        form_of(template)


def test_a_template_without_tools_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="takes no tools"):
        form_of(CHAT_TEMPLATE)


def test_the_template_for_tools_is_taken_where_there_are_several() -> None:
    assert template_of(tokenizer(QWEN)) == QWEN
    assert template_of(tokenizer({"default": CHAT_TEMPLATE, "tool_use": QWEN})) == QWEN
    with pytest.raises(UnsupportedOption, match="no chat template"):
        template_of(tokenizer(None))


def test_marks_are_asked_for_where_text_would_leave_them_out() -> None:
    assert MISTRAL.hidden_marks(tokenizer(MISTRAL_3, "[TOOL_CALLS]", "[IMG]")) == ("[TOOL_CALLS]",)
    assert HERMES.hidden_marks(tokenizer(QWEN)) == ()

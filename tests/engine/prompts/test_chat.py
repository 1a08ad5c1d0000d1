"""Messages go through the chat template, and what it refuses is one sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest

from forerun.engine.prompts.chat import check_text, encode_messages
from forerun.errors import UnsupportedOption
from forerun.testing import CHAT_TEMPLATE, tiny_tokenizer

READS_LISTS = (
    "{% for message in messages %}{{ '<' + message.role + '>' }}{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}{{ '<end>' }}{% endfor %}<assistant>"
)
LISTS_ALONE = READS_LISTS.replace("{% if message.content is string %}{{ message.content }}{% else %}", "{% if 1 %}")
DROPS_LISTS = (
    "{% for message in messages %}<user>{% if message.content is string %}{{ message.content }}{% endif %}{% endfor %}"
)
SHOWS_LISTS = "{% for message in messages %}<user>{{ message.content }}{% endfor %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}<user>"


def tokenizer(template: Any = CHAT_TEMPLATE) -> Any:
    made = tiny_tokenizer()
    made.chat_template = template
    return made


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def said(content: Any, template: str = CHAT_TEMPLATE, role: str = "user") -> str:
    made = tokenizer(template)
    return str(made.decode(encode_messages([{"role": role, "content": content}], made)))


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, READS_LISTS])
@pytest.mark.parametrize("content", ["hi you", parts("hi you"), parts("hi", " you"), tuple(parts("hi", " ", "you"))])
def test_text_parts_say_what_their_text_says(template: str, content: Any) -> None:
    assert said(content, template) == "<user>hi you<end><assistant>"


def test_a_template_that_reads_lists_gets_the_list() -> None:
    marked = READS_LISTS.replace("{{ part.text }}", "{{ part.text | trim }}")

    assert said(parts(" a ", " b "), marked) == "<user>ab<end><assistant>"


def test_a_template_that_reads_nothing_else_gets_the_list() -> None:
    assert said(parts("a", "b"), LISTS_ALONE) == "<user>ab<end><assistant>"


@pytest.mark.parametrize("template", [DROPS_LISTS, SHOWS_LISTS])
def test_a_template_that_would_drop_or_print_the_list_gets_text(template: str) -> None:
    assert said(parts("a", "b"), template) == "<user>ab"


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image", "url": "x"}, "'image'"),
        ({"type": "input_audio"}, "'input_audio'"),
        ({"text": "a"}, "None"),
        ({"type": "text"}, "'text'"),
        ("a", "'str'"),
        (3, "'int'"),
    ],
)
def test_a_part_that_is_no_text_is_refused_by_its_type(part: Any, kind: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"message 0 holds a part of type {kind}; forerun reads text alone"):
        said([*parts("a"), part])


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (NO_SYSTEM, "System role not supported"),
        ("{% for", "unexpected|expected"),
        ("{{ messages[0].surname.first }}", "has no attribute 'surname'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'a' + 1 }}", "can only concatenate str"),
        ({"tool_use": CHAT_TEMPLATE}, "template"),
    ],
)
def test_a_template_that_refuses_or_fails_is_told_in_one_sentence(template: Any, reason: str) -> None:
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    with pytest.raises(
        UnsupportedOption, match=f"(?s)the chat template can't be applied to these messages: .*({reason})"
    ):
        encode_messages(messages, tokenizer(template))


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"content": "hi"}, "message 1 needs a role, such as 'user', got None"),
        ({"role": 3, "content": "hi"}, "message 1 needs a role, such as 'user', got 3"),
        ({"role": "user"}, "message 1 of role 'user' has no content"),
        ({"role": "user", "content": None}, "message 1 of role 'user' has no content"),
        ({"role": "user", "content": 3}, "message 1 must hold text or a list of text parts, got int"),
        ({"role": "user", "content": b"hi"}, "message 1 must hold text or a list of text parts, got bytes"),
        ("hi", 'message 1 must be a mapping with "role" and "content", got str'),
        (5, 'message 1 must be a mapping with "role" and "content", got int'),
        ({"role": "user", "content": "a\ud800"}, r"message 1 holds '\ud800' at place 1, half of a surrogate pair"),
        (
            {"role": "user", "content": parts("\udcff")},
            r"message 1 holds '\udcff' at place 0, half of a surrogate pair",
        ),
    ],
)
def test_what_is_no_message_is_told_with_its_place(message: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        encode_messages([{"role": "user", "content": "fine"}, message], tokenizer())


def test_a_tool_call_needs_no_content() -> None:
    template = "{% for message in messages %}{{ message.content or message.tool_calls[0].name }}{% endfor %}"
    made = tokenizer(template)
    calls = {"role": "assistant", "content": None, "tool_calls": [{"name": "look"}]}

    assert made.decode(encode_messages([{"role": "user", "content": "hi "}, calls], made)) == "hi look"


def test_messages_are_left_as_they_are() -> None:
    messages = [{"role": "user", "content": parts("a", "b")}]
    encode_messages(messages, tokenizer())

    assert messages == [{"role": "user", "content": parts("a", "b")}]


def test_text_with_half_a_surrogate_pair_is_refused() -> None:
    assert check_text("héllo 🌍", "the prompt") == "héllo 🌍"
    with pytest.raises(ValueError, match=r"the prompt holds '\\udc80' at place 2, half of a surrogate pair"):
        check_text("ab\udc80", "the prompt")

"""A client offers functions, gets calls of them, whole and streamed, and sends the results back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import openai
import pytest

from forerun import Engine, load
from forerun.testing import tiny_model, tiny_tokenizer

from .running import NAME, served, service
from .scripted import write

MARK = "[TOOL_CALLS]"
# asks for one form or the other, shows what tools it was given, and writes earlier calls as JSON
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }} FORM {% endif %}{% for message in messages %}<user>"
    "{% for call in message.tool_calls or [] %}{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}"
    "{{ message.content or '' }}<end>{% endfor %}<assistant>"
)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": CITY}},
    {"type": "function", "function": {"name": "now"}},
]
HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TWO = f'So: {HERMES}\n<tool_call>{{"name": "now", "arguments": {{}}}}</tool_call>'
MISTRAL = MARK + ' [{"name": "weather", "arguments": {"city": "Paris"}}]'
ASKED: Any = {"model": NAME, "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, "temperature": 0}


@cache
def engine(form: str) -> Engine:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["<user>", "<assistant>", "<system>", MARK]})
    tokenizer.chat_template = TEMPLATE.replace("FORM", form)
    model = tiny_model("llama", vocab_size=len(tokenizer), eos_token_id=256, max_position_embeddings=1024)
    return load(model, tokenizer, "lookup")


@pytest.fixture(scope="module")
def hermes() -> Iterator[openai.OpenAI]:
    with served(service({"lookup": engine("<tool_call>")})) as address:
        yield openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def mistral() -> Iterator[openai.OpenAI]:
    with served(service({"lookup": engine(MARK)})) as address:
        yield openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def streamed(client: openai.OpenAI, **asked: Any) -> tuple[str, list[dict[str, str]], str | None, list[Any]]:
    """The content, the calls, the reason of the end, and the deltas as they came."""
    content, calls, reason, deltas = "", [], None, []
    for chunk in client.chat.completions.create(**{**ASKED, **asked}, stream=True):
        delta = chunk.choices[0].delta
        deltas.append(delta)
        content += delta.content or ""
        reason = chunk.choices[0].finish_reason or reason
        for part in delta.tool_calls or []:
            if part.id:
                calls.append({"id": part.id, "name": part.function.name, "arguments": ""})
                assert part.index == len(calls) - 1
            calls[part.index]["arguments"] += part.function.arguments
    return content, calls, reason, deltas


def whole(client: openai.OpenAI, **asked: Any) -> tuple[str | None, list[tuple[str, str]], str]:
    choice = client.chat.completions.create(**{**ASKED, **asked}).choices[0]
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    return choice.message.content, calls, choice.finish_reason


def test_a_call_comes_whole(hermes: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    write(monkeypatch, engine("<tool_call>").tokenizer, HERMES)

    assert whole(hermes) == (None, [("weather", '{"city": "Paris"}')], "tool_calls")


def test_several_calls_are_streamed_name_first_with_the_same_parts(
    hermes: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(monkeypatch, engine("<tool_call>").tokenizer, TWO)
    content, calls, reason, deltas = streamed(hermes)
    first = [delta for delta in deltas if delta.tool_calls and delta.tool_calls[0].index == 0]

    assert whole(hermes) == (content, [(call["name"], call["arguments"]) for call in calls], reason)
    assert (content, reason) == ("So:", "tool_calls")
    assert [call["name"] for call in calls] == ["weather", "now"]
    assert json.loads(calls[0]["arguments"]) == {"city": "Paris"}
    assert len({call["id"] for call in calls}) == 2
    assert first[0].tool_calls[0].function.arguments == ""
    assert len(first) > 5  # the arguments come in pieces


def test_with_parallel_calls_off_there_is_one(hermes: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    write(monkeypatch, engine("<tool_call>").tokenizer, TWO)

    assert whole(hermes, parallel_tool_calls=False)[1] == [("weather", '{"city": "Paris"}')]
    assert len(streamed(hermes, parallel_tool_calls=False)[1]) == 1


def test_text_without_a_call_is_content_and_ends_with_stop(
    hermes: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "No <tool_call>weather(Paris)</tool_call> here.\n"
    write(monkeypatch, engine("<tool_call>").tokenizer, text)

    assert whole(hermes) == (text, [], "stop")
    assert streamed(hermes)[:3] == (text, [], "stop")


def test_a_call_that_is_cut_off_is_text_and_says_why(hermes: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    write(monkeypatch, engine("<tool_call>").tokenizer, HERMES)

    assert whole(hermes, max_tokens=50) == (HERMES[:50], [], "length")


def test_a_mark_that_is_a_special_token_is_seen(mistral: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    write(monkeypatch, engine(MARK).tokenizer, MISTRAL)
    content, calls, reason, _ = streamed(mistral)

    assert whole(mistral) == (None, [("weather", '{"city": "Paris"}')], "tool_calls")
    assert (content, reason, len(calls[0]["id"])) == ("", "tool_calls", 9)


def test_where_nothing_may_be_called_the_text_is_text(mistral: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    write(monkeypatch, engine(MARK).tokenizer, MISTRAL)

    assert whole(mistral, tool_choice="none") == (MISTRAL.removeprefix(MARK), [], "stop")


UNIT = {
    "type": "object",
    "properties": {"unit": {"enum": ["C", "F"]}},
    "required": ["unit"],
    "additionalProperties": False,
}
FORCED = [{"type": "function", "function": {"name": name, "parameters": UNIT}} for name in ("heat", "cool")]


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", {"heat", "cool"}), ({"type": "function", "function": {"name": "cool"}}, {"cool"})],
    ids=["required", "named"],
)
def test_a_call_can_be_forced(mistral: openai.OpenAI, choice: Any, names: set[str]) -> None:
    content, calls, reason, _ = streamed(mistral, tools=FORCED, tool_choice=choice)

    assert whole(mistral, tools=FORCED, tool_choice=choice) == (
        None,
        [(call["name"], call["arguments"]) for call in calls],
        "tool_calls",
    )
    assert (content, reason, len(calls)) == ("", "tool_calls", 1)
    assert calls[0]["name"] in names
    assert json.loads(calls[0]["arguments"])["unit"] in ("C", "F")
    assert len(calls[0]["id"]) == 9  # as the model's own template wants it


def test_a_forced_call_can_not_follow_another_form(hermes: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="not both"):
        hermes.chat.completions.create(**ASKED, tool_choice="required", response_format={"type": "json_object"})


def test_langchain_reads_the_calls(hermes: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    langchain = pytest.importorskip("langchain_openai")
    write(monkeypatch, engine("<tool_call>").tokenizer, TWO)
    model = langchain.ChatOpenAI(base_url=str(hermes.base_url), api_key="none", model=NAME, temperature=0)
    answer = model.bind_tools(TOOLS).invoke("hi")
    streamed_answer = None
    for chunk in model.bind_tools(TOOLS).stream("hi"):
        streamed_answer = chunk if streamed_answer is None else streamed_answer + chunk

    for one in (answer, streamed_answer):
        assert one is not None
        assert [(call["name"], call["args"]) for call in one.tool_calls] == [
            ("weather", {"city": "Paris"}),
            ("now", {}),
        ]
        assert one.content == "So:"


def test_speculation_changes_no_call(hermes: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    write(monkeypatch, engine("<tool_call>").tokenizer, TWO)

    assert whole(hermes, extra_body={"speculate": False}) == whole(hermes)


def test_tools_and_earlier_calls_reach_the_template(hermes: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    write(monkeypatch, engine("<tool_call>").tokenizer, "sunny")
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "22"},
    ]
    with_calls = hermes.chat.completions.create(**{**ASKED, "messages": messages})
    filled = {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}
    tools = [TOOLS[0], {"type": "function", "function": filled}]
    parts = [json.dumps(tools) + " <tool_call> ", "uhie", 'uweather{"city": "Paris"}e', "u22e", "a"]

    assert with_calls.choices[0].message.content == "sunny"
    assert with_calls.usage is not None
    assert with_calls.usage.prompt_tokens == len("".join(parts))


@pytest.mark.parametrize(
    ("changed", "field", "message"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools", "must be an object of type"),
        ({"tool_choice": "always"}, "tool_choice", "tool_choice must be"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "add"}}},
            "tool_choice",
            "asks for 'add', and tools holds weather, now",
        ),
        ({"tools": [], "parallel_tool_calls": True}, "parallel_tool_calls", "needs tools"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice", "tools holds no function"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": 3}}]}]},
            "messages",
            "must hold a function with a name",
        ),
    ],
)
def test_what_can_not_be_offered_is_refused_with_the_field(
    hermes: openai.OpenAI, changed: Any, field: str, message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as refused:
        hermes.chat.completions.create(**{**ASKED, **changed})
    assert (refused.value.param or "").startswith(field)


def test_a_model_whose_template_takes_no_tools_says_so() -> None:
    with served(service()) as address, pytest.raises(openai.BadRequestError, match="takes no tools") as refused:
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0).chat.completions.create(**ASKED)
    assert refused.value.param == "tools"

"""What a request wants its text to follow, as the engine's option."""

from __future__ import annotations

from ...engine.request import RequestOptions
from ..refusal import invalid
from .chat import ChatRequest
from .fields import GenerationFields, StructuredOutputs
from .tools import chosen_tools


def structure_of(fields: GenerationFields) -> RequestOptions:
    """At most one option. Raises Refusal where a request wants two."""
    wanted: dict[str, RequestOptions] = {}
    if fields.structured_outputs is not None:
        wanted["structured_outputs"] = _of_outputs(fields.structured_outputs)
    if isinstance(fields, ChatRequest):
        if format := _of_format(fields):
            wanted["response_format"] = format
        tools = chosen_tools(fields)
        if tools is not None and tools.must:
            wanted["tool_choice"] = {"json_schema": tools.schema()}
    if len(wanted) > 1:
        names = list(wanted)
        raise invalid(f"a text can follow {names[0]} or {names[1]}, not both", names[1])
    return next(iter(wanted.values()), RequestOptions())


def _of_outputs(given: StructuredOutputs) -> RequestOptions:
    options: list[RequestOptions] = []
    if given.json_ is not None:
        options.append({"json_schema": given.json_})
    if given.regex is not None:
        options.append({"regex": given.regex})
    if given.choice is not None:
        options.append({"choice": given.choice})
    if given.grammar is not None:
        options.append({"grammar": given.grammar})
    if len(options) != 1:
        raise invalid("structured_outputs must hold one of json, regex, choice and grammar", "structured_outputs")
    return options[0]


def _of_format(chat: ChatRequest) -> RequestOptions:
    format = chat.response_format
    if format is None or format.type == "text":
        return {}
    if format.type == "json_object":
        return {"json_object": True}
    if format.json_schema is None or format.json_schema.schema_ is None:
        raise invalid("response_format of type json_schema needs json_schema.schema", "response_format.json_schema")
    return {"json_schema": format.json_schema.schema_}

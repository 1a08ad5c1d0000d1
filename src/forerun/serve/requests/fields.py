"""The fields that both endpoints take. Anything else is refused by its name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=10_000)]
Token = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]


class Body(BaseModel):
    """Numbers are numbers, unknown fields are refused, and messages don't repeat what was sent."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True, frozen=True)


class StreamOptions(Body):
    include_usage: bool = False


class TextPart(Body):
    type: Literal["text"]
    text: str


class ExpectedText(Body):
    """OpenAI's predicted output."""

    type: Literal["content"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StructuredOutputs(Body):
    """vLLM's: one of these."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = None
    grammar: str | None = None


class GenerationFields(Body):
    """OpenAI's fields; those that vLLM and llama-server add; and forerun's own: speculate, method and return_drafts."""

    model: Text | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Count | None = None
    stop: Text | Annotated[list[Text], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[str, Bias], Field(max_length=1024)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prediction: ExpectedText | None = None
    user: Text | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    stop_token_ids: Annotated[list[Token], Field(max_length=256)] | None = None
    structured_outputs: StructuredOutputs | None = None
    speculate: bool | None = None
    method: Text | None = None
    return_drafts: bool | None = None

    @property
    def most_new(self) -> int | None:
        """How many tokens the request allows."""
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """Log-probabilities: of how many alternatives, None for none at all."""
        raise NotImplementedError

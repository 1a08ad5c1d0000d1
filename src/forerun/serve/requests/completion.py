"""The body of /v1/completions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .fields import GenerationFields, Token

DEFAULT_TOKENS = 16  # OpenAI's, for this endpoint


class CompletionRequest(GenerationFields):
    prompt: (
        str
        | list[Token]
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[list[list[Token]], Field(min_length=1)]
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    # what OpenAI's clients send and what is done anyway
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: Literal[""] | None = None

    @property
    def most_new(self) -> int | None:
        return DEFAULT_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def alternatives(self) -> int | None:
        return self.logprobs

    @property
    def prompts(self) -> list[str | list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        several: list[str | list[int]] = [one for one in self.prompt if not isinstance(one, int)]
        return several or [[one for one in self.prompt if isinstance(one, int)]]

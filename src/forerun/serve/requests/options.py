"""From a request's fields to the engine's options."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from ...core.processors import row_wise
from ...engine.engine import Engine
from ...engine.request import LogitsProcessor, RequestOptions
from ..refusal import invalid
from ..settings import Settings
from .fields import GenerationFields
from .processors import NoEndBefore, TokenBias, biases_of
from .structure import structure_of

# fields that the engine has under the same name
SAME = (
    *("top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "stop", "stop_token_ids"),
    *("ignore_eos", "speculate"),
)
DEFAULT_TOKENS = 4096  # of an answer where neither the request nor the context says how long it may be


def options_of(fields: GenerationFields, engine: Engine, prompt_tokens: int, settings: Settings) -> RequestOptions:
    """The engine's options but for the seed. Raises Refusal where lengths exceed the limits.

    Where the temperature is left out, tokens are drawn as the checkpoint says, at temperature 1 where it says nothing.
    """
    options: RequestOptions = {"max_new_tokens": most_new(fields, engine, prompt_tokens, settings)}
    given = {name: value for name in SAME if (value := getattr(fields, name)) is not None}
    options.update(given)  # type: ignore[typeddict-item]
    if fields.temperature is None:
        options["do_sample"] = True
    else:
        options["temperature"] = fields.temperature
    if fields.top_k is not None:
        options["top_k"] = max(fields.top_k, 0)  # vLLM's -1 keeps all
    if fields.alternatives is not None:
        options["logprobs"] = fields.alternatives
    if fields.prediction is not None and fields.prediction.text:
        options["prediction"] = fields.prediction.text
    if not settings.remember:
        options["remember"] = False
    options.update(structure_of(fields))
    if processors := list(processors_of(fields, engine, prompt_tokens)):
        options["processors"] = processors
    return options


def most_new(fields: GenerationFields, engine: Engine, prompt_tokens: int, settings: Settings) -> int:
    """How many tokens the answer may have. Raises Refusal where the request asks for more than there is room."""
    context, limit, asked = engine.runner.max_length, settings.most_tokens, fields.most_new
    if context is not None and prompt_tokens + (asked or 1) > context:
        wanted = f" and asks for up to {asked} more" if asked else ""
        raise invalid(
            f"the prompt has {prompt_tokens} tokens{wanted}; the context holds {context}, so shorten either",
            "prompt" if asked is None or prompt_tokens >= context else "max_tokens",
            "context_length_exceeded",
        )
    if asked is not None and limit is not None and asked > limit:
        raise invalid(f"max_tokens must be at most {limit} on this server, got {asked}", "max_tokens")
    if fields.min_tokens is not None and asked is not None and fields.min_tokens > asked:
        raise invalid(f"min_tokens is {fields.min_tokens}, more than the {asked} tokens allowed", "min_tokens")
    if asked is not None:
        return asked
    room = DEFAULT_TOKENS if context is None else context - prompt_tokens
    return room if limit is None else min(room, limit)


def processors_of(fields: GenerationFields, engine: Engine, prompt_tokens: int) -> Iterable[LogitsProcessor]:
    size = engine.runner.vocab_size
    if biases := biases_of(fields.logit_bias, size):
        yield row_wise(TokenBias(biases))
    if fields.min_tokens:
        ends = engine.eos | engine.checkpoint_defaults.ends | set(fields.stop_token_ids or ())
        if bad := [token for token in ends if token >= size]:
            raise invalid(f"stop_token_ids must be in 0..{size - 1}, got {bad[0]}", "stop_token_ids")
        if ends:
            yield row_wise(NoEndBefore(prompt_tokens + fields.min_tokens, sorted(ends)))


def seeds(seed: int | None, count: int) -> list[int]:
    """A seed for each choice, the first as given; none given, from the system's randomness."""
    first = secrets.randbelow(2**63) if seed is None else seed
    return [first, *(_derived(first, choice) for choice in range(1, count))]


def _derived(seed: int, choice: int) -> int:
    digest = hashlib.blake2b(f"{seed} {choice}".encode(), digest_size=8, person=b"forerun choice").digest()
    return int.from_bytes(digest, "little") >> 1

"""forerun generate: one prompt, streamed."""

from __future__ import annotations

import sys
from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engine.generation_config.defaults import CheckpointDefaults
from ..engine.methods import DEFAULT_DRAFTER
from ..engine.request import RequestOptions
from ..errors import UnsupportedOption
from .flags import request_flags, request_of, takes
from .method import method_flags
from .shared_options import OPENING, RESERVED, AsJson, Drafter, Model, Policy, Raw
from .system_choice import SystemFile, choice_of
from .terminal import note, show, show_json, write
from .threads import THREADS

if TYPE_CHECKING:
    from ..engine.answer import Result
    from ..engine.engine import Engine


@takes(*OPENING, THREADS, *request_flags(), *method_flags(RESERVED))
def generate(
    context: typer.Context,
    model: Model,
    prompt: Annotated[str, typer.Argument(help="The text to answer; - reads it from stdin.", show_default=False)],
    drafter: Drafter = DEFAULT_DRAFTER,
    policy: Policy = None,
    system: SystemFile = None,
    system_prompt: Annotated[str | None, typer.Option(help="A system message before the prompt.")] = None,
    raw: Raw = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Answer a prompt. In a terminal, the tokens that were drafted and accepted are green."""
    choice, request = choice_of(system, drafter, policy, context, given), request_of(given)
    if "logprobs" in request and not as_json:
        raise UnsupportedOption("log-probabilities are printed with --json only; add it, or leave --logprobs out")
    text = _stdin().removesuffix("\n") if prompt == "-" else prompt
    if not text:
        raise ValueError("the prompt is empty; give at least one token")
    from ..engine.prompts.questions import Question, has_chat_template

    before = () if system_prompt is None else ({"role": "system", "content": system_prompt},)
    engine = choice.open(model)
    if request["generation_config"] and not {"temperature", "do_sample"} & {*request}:
        tell_sampling(engine.checkpoint_defaults)
    asked = Question((text,), before).prompt((), chat=not raw and has_chat_template(engine.tokenizer))
    result, seconds = _answer(engine, asked, request, quiet=as_json)
    lossy = engine.lossy
    if as_json:
        show_json({**_described(result, seconds), "lossy": lossy})
    else:
        show()
        if engine.choice:
            note(engine.choice)
        note(summary(result, seconds))
        for number, round in enumerate(result.explained or (), start=1):
            note(f"round {number}: {round.line}")
    if lossy:
        note("lossy: sampled text does not follow the model's distribution with this verification")


def tell_sampling(defaults: CheckpointDefaults) -> None:
    """A line where the checkpoint would draw tokens by itself."""
    if defaults.samples:
        values = {**defaults.options_if_drawn, **defaults.warpers}
        told = ", ".join(f"{name} {value:g}" for name, value in values.items()) or "no filters"
        note(f"decoding greedily; the checkpoint's generation config asks for sampling ({told}): add --sample for that")


def _stdin() -> str:
    if sys.stdin is None:
        raise ValueError("the prompt is to come from stdin, which is closed; pipe a text in, or give it as an argument")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"stdin holds no {error.encoding} text ({error.reason} at byte {error.start}); convert it first"
        ) from error


def _answer(engine: Engine, prompt: Any, request: RequestOptions, quiet: bool) -> tuple[Result, float]:
    """The result, and the seconds after the first token."""
    pieces = engine.stream(prompt, **request)
    piece = next(pieces)
    begun = perf_counter()
    while True:
        if not quiet:
            write(piece.text, piece.drafted)
        if piece.result is not None:
            return piece.result, perf_counter() - begun
        piece = next(pieces)


def _described(result: Result, seconds: float) -> dict[str, Any]:
    return {
        "text": result.text,
        "ids": list(result.ids),
        "finish_reason": result.finish_reason,
        "prompt_tokens": result.prompt_tokens,
        "tokens_per_second": result.stats.decoded / seconds if seconds and result.stats.decoded else None,
        "stats": result.stats.as_dict(),
        "applied": dict(result.applied),
        "choice": result.choice or None,
        "explained": None if result.explained is None else [round.as_dict() for round in result.explained],
        "logprobs": None if result.logprobs is None else [asdict(one) for one in result.logprobs],
    }


def summary(result: Result, seconds: float) -> str:
    """A line on an answer that took so many seconds after its first token."""
    stats = result.stats
    said = [f"{stats.tokens} tokens, ended by {result.finish_reason}"]
    if stats.decoded and seconds:
        said.append(f"{stats.decoded / seconds:.1f} tokens/s after the first")
        said.append(f"{stats.tokens_per_round:.2f} tokens per round")
    if stats.drafted:
        said.append(f"{stats.accepted} of {stats.drafted} drafted tokens accepted")
    return "; ".join(said)

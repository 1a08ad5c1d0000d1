"""forerun train prompts and answers: the data that drafts are trained on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UnsupportedOption
from ...jsonl import Skipped
from ..flags import request_flags, takes
from ..output import check_lines
from ..shared_options import OPENING, PLAIN, AsJson, Model, open_engine
from ..terminal import note, progress, show, show_json
from ..threads import THREADS
from ..values import parse
from .endpoint import EndpointUrl, InFlight, KeyVariable, ServedModel, Server, answers_of
from .lines import SkipBad, counting, skipped_as_dict, tell_skipped

if TYPE_CHECKING:
    from ...core.identity import Identity
    from ...jsonl import Skipped
    from ...train.data.states import StateStore

Output = Annotated[Path, typer.Option("--output", "-o", help="The JSON lines file to add to.")]
Exclude = Annotated[
    list[Path] | None, typer.Option(help="A file of prompts that must not occur, such as a benchmark's.")
]
Batch = Annotated[int, typer.Option(help="The number of requests that share a forward.")]


@takes(*OPENING, THREADS)
def prompts(
    model: Model,
    output: Output,
    count: Annotated[int, typer.Option(help="How many different prompts to write in total.")] = 1000,
    temperature: Annotated[float, typer.Option(help="Above 0; higher gives more variety and more nonsense.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from the k most probable tokens (0: all).")] = 200,
    top_p: Annotated[
        float, typer.Option(help="Draw from the most probable tokens with this total probability.")
    ] = 0.95,
    max_tokens: Annotated[int, typer.Option(help="Leave out longer turns.")] = 128,
    seed: Annotated[int, typer.Option(help="The same seed gives the same prompts.")] = 0,
    openings: Annotated[
        Path | None, typer.Option(help="A file of beginnings, one per line, which the turns use in rotation.")
    ] = None,
    exclude: Exclude = None,
    batch: Batch = 48,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Sample what users say from a chat model's own template, where no prompts are at hand. Goes on after a kill."""
    from ...train.data.prompts import PromptOptions, read_openings, sample_prompts, texts_of

    options = PromptOptions(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        max_tokens=max_tokens,
        seed=seed,
        max_batch=batch,
        openings=("",) if openings is None else read_openings(openings),
    )
    unwanted = texts_of(exclude or ())
    check_lines(output)
    engine = open_engine(model, PLAIN, given)
    held, begun = 0, perf_counter()
    with progress("sampling prompts", count) as tick:
        for now in sample_prompts(engine, output, count, options, unwanted):
            for _ in range(now - held):
                tick()
            held = now
    _end({"prompts": held, "seconds": perf_counter() - begun, "file": str(output)}, as_json)


@takes(*OPENING, THREADS, *request_flags(only=("generation_config",)))
def answers(
    model: Model,
    prompts: Annotated[Path, typer.Argument(help="Prompts: JSON lines with prompt, messages or turns.")],
    output: Output,
    max_new_tokens: Annotated[int, typer.Option(help="The longest answer, in tokens.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 answers greedily.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Draw from the most probable tokens with this total probability.")] = 1.0,
    max_prompt: Annotated[int, typer.Option(help="Leave out longer prompts.")] = 1024,
    seed: Annotated[int, typer.Option(help="The same seed gives the same answers.")] = 0,
    exclude: Exclude = None,
    states: Annotated[
        Path | None, typer.Option(help="Keep the states at --layers in this directory, for train exit-adapter.")
    ] = None,
    layers: Annotated[
        str,
        typer.Option(help="The layers whose input states to keep: 10,15,30. L of L: the output of the last one."),
    ] = "",
    batch: Batch = 48,
    endpoint: EndpointUrl = "",
    served: ServedModel = "",
    in_flight: InFlight = 32,
    key_variable: KeyVariable = "OPENAI_API_KEY",
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Let the model answer prompts, many at a time, as data to train a draft on. Goes on after a kill.

    With --endpoint a server with OpenAI's API answers, which runs the model; MODEL is then where its tokenizer is.
    """
    from ...train.data.answers import AnswerOptions, answer
    from ...train.data.prompts import texts_of

    options = AnswerOptions(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        max_prompt=max_prompt,
        seed=seed,
        generation_config=given["generation_config"],
    )
    unwanted = texts_of(exclude or ())
    check_lines(output)
    kept, skipped = _kept(layers, states), counting(skip_bad)
    if endpoint and states is not None:
        raise UnsupportedOption("a server tells no states: --states and --endpoint don't go together")
    with ExitStack() as stack:
        if endpoint:
            server = Server(endpoint, served, in_flight, key_variable)
            made = answers_of(server, model, prompts, output, options, unwanted, skipped, given)
        else:
            engine = open_engine(model, PLAIN, given)
            store = None if states is None else stack.enter_context(closing(_store(states, kept, engine.identity)))
            made = answer(engine, prompts, output, options, unwanted, batch, store, skipped)
        about = _answered(made, skipped, output)
    rest = {"tokens_per_second": about["new_tokens"] / about["seconds"] if about["new_tokens"] else None}
    _end({**about, **(skipped_as_dict(skipped) if as_json else {}), **rest}, as_json)


def _answered(made: Iterator[tuple[int, int, int]], skipped: Skipped | None, output: Path) -> dict[str, Any]:
    """What there is at the end, with a bar on the way there."""
    done, total, tokens = next(made)
    tell_skipped(skipped)
    left_out = 0 if skipped is None else skipped.count
    known, begun = done, perf_counter()
    note(f"{total} prompts, {known} of them answered before")
    with progress("answering", total - known) as tick:
        for done, _, tokens in made:  # noqa: B007
            tick()
    if skipped is not None and skipped.count > left_out:
        tell_skipped(skipped)
    return {
        "answers": done,
        "new_answers": done - known,
        "new_tokens": tokens,
        "seconds": perf_counter() - begun,
        "file": str(output),
    }


def _kept(layers: str, states: Path | None) -> tuple[int, ...]:
    """The layers whose states are kept. Raises ValueError where there is no place for them, or only a place."""
    kept: tuple[int, ...] = parse(layers, tuple[int, ...], "--layers")
    if bool(kept) != (states is not None):
        raise ValueError("--states and --layers go together: a directory, and the layers whose states to keep there")
    return kept


def _store(directory: Path, layers: tuple[int, ...], model: Identity) -> StateStore:
    from ...train.data.states import StateStore

    for layer in layers:
        if not 0 <= layer <= model.num_layers:
            raise ValueError(f"--layers must be in 0..{model.num_layers} for this model, got {layer}")
    return StateStore(directory, layers, model.hidden_size, model.weights)


def _end(about: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(about)
        return
    show(
        ", ".join(
            f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}" for name, value in about.items()
        )
    )

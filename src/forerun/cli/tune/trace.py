"""forerun trace: what a drafter would draft everywhere, as a file to replay policies on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UnsupportedOption
from ..flags import takes
from ..method import Method, method_flags, method_of
from ..output import check_lines
from ..shared_options import OPENING, RESERVED, AsJson, Drafter, Model, Raw, measured_with, open_engine
from ..terminal import note, progress, show, show_json
from ..threads import THREADS
from ..values import at_least
from .rounds import COST_PROMPTS, measured_rounds

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...traces.read import TraceHeader
    from ...traces.record import TracedPrompt

OWN = (
    "depth",
    "top",
    "per_category",
    "skip",
    "max_prompt",
    "max_new_tokens",
    "hidden",
    "batch",
    "cost_prompts",
    "output",
)


@takes(*OPENING, THREADS, *method_flags((*RESERVED, *OWN)))
def trace(
    model: Model,
    prompts: Annotated[Path, typer.Option(help='JSON lines with "prompt", "messages" or "turns".', show_default=False)],
    drafter: Drafter,
    output: Annotated[Path, typer.Option("--output", "-o", help="The JSON lines file to add to.", show_default=False)],
    depth: Annotated[int, typer.Option(help="How many tokens to draft at each position.")] = 12,
    top: Annotated[int, typer.Option(help="How many of a row's largest probabilities to record.")] = 10,
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens of an answer.")] = 64,
    per_category: Annotated[int | None, typer.Option(help="Take at most this many prompts of a category.")] = None,
    skip: Annotated[int, typer.Option(help="Leave out this many first prompts of each category.")] = 0,
    max_prompt: Annotated[int, typer.Option(help="Leave out longer prompts.")] = 1024,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Also keep the draft's hidden states, which acceptance heads read.")
    ] = False,
    batch: Annotated[int, typer.Option(help="The number of requests that share a forward.")] = 8,
    cost_prompts: Annotated[
        int, typer.Option(help="Measure the cost of rounds first, on this many of the prompts; 0: not at all.")
    ] = COST_PROMPTS,
    raw: Raw = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Draft at every position of the model's greedy answers, for simulate and policies compare. Goes on after a kill."""
    from ...bench.suite import fingerprint
    from ...traces.read import TraceHeader
    from ...traces.record import read_prompts

    at_least(1, depth=depth, top=top, max_new_tokens=max_new_tokens, batch=batch, max_prompt=max_prompt)
    at_least(0, skip=skip, cost_prompts=cost_prompts)
    method = _method(drafter, given)
    check_lines(output)
    engine = open_engine(model, method, given)
    asked = read_prompts(engine, prompts, per_category=per_category, skip=skip, max_prompt=max_prompt, raw=raw)
    about = {
        **measured_with(engine, given["weights"]),
        "prompts": {"file": prompts.name, "sha256": fingerprint(prompts), "per_category": per_category, "skip": skip},
    }
    new = not output.exists() or output.stat().st_size == 0
    ids = [one.ids for one in asked]
    header = TraceHeader(
        model=engine.name,
        pair=engine.pair,
        drafter=drafter,
        drafter_options=json.loads(json.dumps(method.drafter_options)),
        depth=depth,
        top=top,
        max_new_tokens=max_new_tokens,
        hidden=hidden,
        asked=len(asked),
        costs=measured_rounds(engine, drafter, ids, depth, about["weights"], cost_prompts) if new else None,
        about=about,
    )
    known, seconds = _traced(engine, header, output, asked, batch)
    told = {"file": str(output), "answers": len(asked), "new": len(asked) - known, "seconds": seconds}
    if as_json:
        show_json(told)
        return
    show(f"{output}: {told['answers']} answers, {told['new']} of them new, in {told['seconds']:.0f} s")


def _traced(
    engine: Engine, header: TraceHeader, output: Path, asked: Sequence[TracedPrompt], batch: int
) -> tuple[int, float]:
    """How many prompts were traced before, and the seconds that the others took."""
    from ...traces.record import trace as make_trace

    made = make_trace(engine, header, output, asked, batch)
    known, begun = next(made)[0], perf_counter()
    note(f"{len(asked)} prompts, {known} of them traced before")
    with progress("tracing", len(asked) - known) as tick:
        for _ in made:
            tick()
    return known, perf_counter() - begun


def _method(drafter: str, given: Mapping[str, Any]) -> Method:
    method = method_of(drafter, "fixed", given)
    if method.policy_options:
        raise UnsupportedOption(f"a trace is made without a policy, so it takes no {', '.join(method.policy_options)}")
    if drafter == "none":
        raise UnsupportedOption("drafter 'none' drafts nothing to trace; take another, see: forerun drafters")
    return method

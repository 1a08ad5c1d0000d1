"""forerun compare: plain decoding against speculation, measured."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engine.methods import DEFAULT_DRAFTER
from ..engine.options import Options
from ..engine.request import RequestOptions
from .flags import request_flags, request_of, takes
from .method import method_flags
from .shared_options import OPENING, RESERVED, AsJson, Drafter, Model, Policy, Raw
from .system_choice import SystemFile, choice_of
from .terminal import note, progress, show, show_json, show_table
from .threads import THREADS

if TYPE_CHECKING:
    from ..bench.comparison import Comparison
    from ..bench.profile import Profile
    from ..engine.prompts.questions import Question
    from ..models.packed.runner import Runner

UNTIMED = ("speculate", "logprobs", "processed_logprobs", "explain")
# texts of every checkpoint are measured to the same length
LENGTH: RequestOptions = {"max_new_tokens": Options().max_new_tokens}


@takes(*OPENING, THREADS, *request_flags(without=UNTIMED), *method_flags(RESERVED))
def compare(
    context: typer.Context,
    model: Model,
    drafter: Drafter = DEFAULT_DRAFTER,
    policy: Policy = None,
    system: SystemFile = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help='JSON lines with "prompt", "messages" or "turns"; a few built-in ones if not given.'),
    ] = None,
    repeats: Annotated[int, typer.Option(help="How many times each method answers all prompts.")] = 5,
    profile: Annotated[bool, typer.Option("--profile", help="Also show where a round's time goes.")] = False,
    raw: Raw = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Measure a method against plain decoding. Exit status 1 if outputs differ by more than rounding explains."""
    choice = choice_of(system, drafter, policy, context, given)
    request: RequestOptions = {**LENGTH, **request_of(given)}
    from ..bench.compare import compare as measure
    from ..bench.compare import count_runs
    from ..bench.profile import profile_of
    from ..engine.measurement_conditions import conditions
    from ..engine.prompts.questions import read_questions

    questions = own_questions("repeating", "open") if prompts is None else read_questions(prompts)
    engine = choice.open(model)
    with progress("comparing", count_runs(1, questions, repeats)) as tick:
        found = measure([engine], questions, request, repeats=repeats, raw=raw, tick=tick)[0]
    if engine.choice:
        note(engine.choice)
    about = conditions(engine, shlex.join(["forerun", *sys.argv[1:]]))
    if as_json:
        parts = {"profile": profile_of(found.speculative).as_dict()} if profile else {}
        show_json({"method": choice.method.label, "choice": engine.choice or None, **found.as_dict(), **parts, **about})
    else:
        show_table(("", "plain", choice.method.label), _rows(found))
        show(verdict(found))
        if profile:
            _show_profile(profile_of(found.speculative))
            for line in kernels_of(engine.runners):
                show(line)
        show(f"{about['model']}, {about['dtype']}, {about['hardware']}, {about['threads']} threads")
    if found.verdict == "bug":
        note("the outputs must be equal and are not: please report this with the command")
        raise typer.Exit(1)


def kernels_of(runners: Sequence[Runner]) -> list[str]:
    """A line a model, the target first: whose code computes, and why not better ones."""
    lines = []
    for index, runner in enumerate(runners):
        why = f" ({runner.kernels_reason})" if runner.kernels_reason else ""
        lines.append(f"kernels{f' of {runner.name}' if index else ''}: {runner.kernels}{why}")
    return lines


def _show_profile(found: Profile) -> None:
    rows = [(name, f"{1e3 * seconds:.3f}", f"{share:.1%}") for name, seconds, share in found.rows()]
    show_table(("a round", "ms", "share"), rows)
    if found.native:
        show(
            f"Inside native code {1e3 * found.native:.3f} ms a round, outside {1e3 * (found.total - found.native):.3f} ms."
        )
    show(found.advice())


def own_questions(*names: str) -> list[Question]:
    """The prompts that come with forerun: "repeating", whose answers repeat their prompt, and "open"."""
    from ..engine.prompts.questions import read_questions

    questions: list[Question] = []
    for name in names:
        with as_file(files("forerun") / "data" / f"{name}.jsonl") as path:
            questions += read_questions(path)
    return questions


def verdict(found: Comparison) -> str:
    """Were the outputs equal, and if not, why?"""
    where = found.difference
    if where is None:
        return "Outputs: equal, token for token."
    place = f"question {where.question + 1}, turn {where.turn + 1}, token {where.position + 1}"
    if found.verdict == "sampled":
        return (
            f"Outputs: sampled, first different at {place}; drawn drafts keep the distribution of the output, not its "
            "tokens."
        )
    preferred = f"plain decoding preferred its token there by {where.margin:.3g}"
    if found.verdict == "rounding":
        return f"Outputs: {found.match_rate:.1%} equal; first different at {place}, a near-tie ({preferred})."
    return f"Outputs: DIFFERENT at {place}; {preferred}, more than rounding explains ({found.rounding_margin:.2g})."


def _rows(found: Comparison) -> Sequence[tuple[str, str, str]]:
    told = found.as_dict()
    low, high = told["speedup_quartiles"]
    positions = " ".join(f"{value:.2f}" for value in told["acceptance_per_position"])
    cost = told["draft_cost_ratio"]
    return [
        ("tokens/s", f"{told['plain_tokens_per_second']:.1f}", f"{told['speculative_tokens_per_second']:.1f}"),
        ("speed-up (quartiles)", "1", f"{told['speedup']:.2f} ({low:.2f} to {high:.2f})"),
        ("tokens per round", "1", f"{told['tokens_per_round']:.2f}"),
        ("acceptance by position", "", positions or "nothing drafted"),
        ("discarded per emitted", "0", f"{told['discard_rate']:.2f}"),
        ("verifications per emitted", "1", f"{told['verification_rate']:.2f}"),
        ("cost of a draft step c", "", "nothing drafted" if cost is None else f"{cost:.3f}"),
        ("cost of a verification", "1", f"{told['verify_cost_ratio']:.2f}"),
        ("predicted speed-up", "", f"{told['predicted_speedup']:.2f}"),
        ("  if wide forwards cost nothing more", "", f"{told['predicted_speedup_free_width']:.2f}"),
    ]

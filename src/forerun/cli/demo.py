"""forerun demo: the bundled model writes, plainly and ahead of itself, and what that gains is measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Annotated, Any

import typer

from ..bench.compare import compare, count_runs
from ..bench.comparison import Comparison, spread
from ..bench.conditions import conditions
from ..bench.questions import has_chat_template
from ..engine import Engine
from .compare import own_questions, verdict
from .given import open_engine
from .method import Method
from .screen import note, progress, show, show_table, write

MODEL = "smollm2"
KINDS = {"repeating": "answers that repeat the prompt", "open": "open questions"}
# a speed-up counts where even its lower quartile is this far above 1, a slow-down where its upper one is as far below
CLEAR = 0.05


def methods_for(num_layers: int) -> tuple[Method, ...]:
    """One that needs no forward, an early exit half-way, and the target without every third of its later attentions."""
    thinned = tuple(range(num_layers * 3 // 10, num_layers - 2, 3))
    return (
        Method("lookup", "fixed", {}, {"k": 7}),
        Method("self", "fixed", {"exit_layer": num_layers // 2}, {"k": 3}),
        Method("self", "fixed", {"skip_attention": thinned}, {"k": 3}),
    )


def demo(
    repeats: Annotated[int, typer.Option(help="How many times every method answers every prompt.")] = 3,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens an answer.")] = 32,
    seconds: Annotated[float, typer.Option(help="Time for either kind of prompts; a slow machine repeats less.")] = 45,
    dtype: Annotated[
        str, typer.Option(help="float32 is exact on a CPU; bfloat16 may differ in near-ties.")
    ] = "float32",
    model: Annotated[str, typer.Option(help="Another model than the bundled one.")] = MODEL,
) -> None:
    """Watch the bundled model write, with and without speculation, and see where it helps and where it doesn't."""
    plain = open_engine(model, Method("none", "fixed", {}, {}), dtype, None, trust=False)
    methods = methods_for(plain.runner.num_layers)
    engines = [
        plain.using(m.drafter, m.policy, drafter_options=m.drafter_options, policy_options=m.policy_options)
        for m in methods
    ]
    request = {"max_new_tokens": max_new_tokens}
    _watch({"Plain decoding": plain, f"With {methods[0].label} (green: drafted)": engines[0]}, request)
    found: dict[str, list[Comparison]] = {}
    for kind, described in KINDS.items():
        questions = own_questions(kind)
        with progress(described, count_runs(len(engines), questions, repeats)) as tick:
            found[kind] = compare(engines, questions, request, repeats=repeats, seconds=seconds, tick=tick)
        _report(f"{described[0].upper()}{described[1:]}", methods, found[kind])
    about = conditions(plain, "forerun demo")
    show(f"{about['model']}, {about['dtype']}, {about['hardware']}, {about['threads']} threads, greedy decoding.\n")
    for number, method in enumerate(methods):
        show(conclusion(method.label, {kind: comparisons[number] for kind, comparisons in found.items()}))


def _watch(writers: dict[str, Engine], request: dict[str, Any]) -> None:
    """One answer as it is written, first plainly, then through drafting and verification."""
    question = own_questions("repeating")[0]
    show(f"Prompt: {question.turns[0]}\n")
    for title, writer in writers.items():
        show(f"{title}:")
        for piece in writer.stream(question.prompt((), has_chat_template(writer.tokenizer)), **request):
            write(piece.text, piece.drafted)
        show("\n")
    note("measuring, in alternating runs")


def _report(title: str, methods: Sequence[Method], found: Sequence[Comparison]) -> None:
    rows = [("plain decoding", f"{median(found[0].plain.rates):.1f}", "1", "1", "0", "")]
    for method, one in zip(methods, found, strict=True):
        low, high = spread(one.ratios)
        stats = one.speculative.stats
        rows.append(
            (
                method.label,
                f"{median(one.speculative.rates):.1f}",
                f"{one.speedup:.2f} ({low:.2f} to {high:.2f})",
                f"{stats.tokens_per_round:.2f}",
                f"{stats.discard_rate:.2f}",
                "yes" if one.identical else one.verdict,
            )
        )
    show_table(("method", "tokens/s", "speed-up", "tokens/round", "discarded/token", "equal output"), rows, title)


def conclusion(label: str, found: dict[str, Comparison]) -> str:
    """What the numbers say about a method, kind by kind."""
    said = [f"{effect(one.ratios)} on {KINDS[kind]}" for kind, one in found.items()]
    unequal = [verdict(one) for one in found.values() if not one.identical]
    return " ".join([f"{label}: {'; '.join(said)}.", *unequal])


def effect(ratios: Sequence[float]) -> str:
    """Faster, slower, or no clear difference, by where the quartiles lie."""
    low, high = spread(ratios)
    if low > 1 + CLEAR:
        return f"it helped ({median(ratios):.2f} times as fast)"
    if high < 1 - CLEAR:
        return f"it cost time ({median(ratios):.2f} times as fast)"
    return f"it made no clear difference ({low:.2f} to {high:.2f})"

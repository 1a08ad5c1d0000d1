"""forerun demo: the bundled model writes with and without speculation, and the gain is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engine.methods import DEFAULT_DRAFTER, POLICY_OF_AUTO
from ..engine.request import RequestOptions
from .compare import own_questions
from .conclusion import conclusion
from .flags import takes
from .method import Method
from .shared_options import PLAIN, open_engine
from .terminal import note, progress, show, show_table, write
from .threads import THREADS

if TYPE_CHECKING:
    from ..bench.comparison import Comparison
    from ..engine.engine import Engine

MODEL = "smollm2"
KINDS = {"repeating": "answers that repeat the prompt", "open": "open questions"}


def methods_for(num_layers: int) -> dict[str, Method]:
    """The default, an early exit half-way, and the target without every third of its later attentions."""
    thinned = tuple(range(num_layers * 3 // 10, num_layers - 2, 3))
    return {
        "auto": Method(DEFAULT_DRAFTER, POLICY_OF_AUTO, {}, {}),
        "early exit": Method("self", "fixed", {"exit_layer": num_layers // 2}, {"k": 3}),
        "fewer layers": Method("self", "fixed", {"skip_attention": thinned}, {"k": 3}),
    }


@takes(THREADS)
def demo(
    repeats: Annotated[int, typer.Option(help="How many times every method answers every prompt.")] = 3,
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens of an answer.")] = 32,
    seconds: Annotated[
        float, typer.Option(help="Time limit for each kind of prompts; a slow machine repeats less.")
    ] = 45,
    dtype: Annotated[
        str, typer.Option(help="float32 is exact on a CPU; bfloat16 may differ in near-ties.")
    ] = "float32",
    model: Annotated[str, typer.Option(help="A model other than the bundled one.")] = MODEL,
    **_: Any,
) -> None:
    """Watch the bundled model write, with and without speculation, and see where it helps and where it doesn't."""
    from ..bench.compare import compare, count_runs
    from ..engine.measurement_conditions import conditions

    plain = open_engine(model, PLAIN, {"dtype": dtype})
    methods = methods_for(plain.runner.num_layers)
    engines = [
        plain.using(m.drafter, m.policy, drafter_options=m.drafter_options, policy_options=m.policy_options)
        for m in methods.values()
    ]
    request: RequestOptions = {"max_new_tokens": max_new_tokens}
    _watch({"Plain decoding": plain, "With forerun's default, auto (green: drafted and accepted)": engines[0]}, request)
    for name, method in methods.items():
        show(f"{name}: {method.label}")
    show(engines[0].choice)
    found: dict[str, list[Comparison]] = {}
    for kind, described in KINDS.items():
        questions = own_questions(kind)
        with progress(described, count_runs(len(engines), questions, repeats)) as tick:
            found[described] = compare(engines, questions, request, repeats=repeats, seconds=seconds, tick=tick)
        _report(f"\n{described[0].upper()}{described[1:]}", methods, found[described])
    about = conditions(plain, "forerun demo")
    show(f"{about['model']}, {about['dtype']}, {about['hardware']}, {about['threads']} threads, greedy decoding.\n")
    for number, name in enumerate(methods):
        show(conclusion(name, {kind: comparisons[number] for kind, comparisons in found.items()}))


def _watch(writers: Mapping[str, Engine], request: RequestOptions) -> None:
    """One answer as it is written, first plainly, then through drafting and verification."""
    from ..engine.prompts.questions import has_chat_template

    question = own_questions("repeating")[0]
    show(f"Prompt: {question.turns[0]}\n")
    for title, writer in writers.items():
        show(f"{title}:")
        for piece in writer.stream(question.prompt((), has_chat_template(writer.tokenizer)), **request):
            write(piece.text, piece.drafted)
        show("\n")
    note("measuring, in alternating runs")


def _report(title: str, names: Mapping[str, Method], found: Sequence[Comparison]) -> None:
    from ..bench.comparison import spread

    rows = [("plain decoding", f"{median(found[0].plain.rates):.1f}", "1", "1", "0", "")]
    for name, one in zip(names, found, strict=True):
        low, high = spread(one.ratios)
        stats = one.speculative.stats
        rows.append(
            (
                name,
                f"{median(one.speculative.rates):.1f}",
                f"{one.speedup:.2f} ({low:.2f} to {high:.2f})",
                f"{stats.tokens_per_round:.2f}",
                f"{stats.discard_rate:.2f}",
                "yes" if one.identical else one.verdict,
            )
        )
    show_table(("method", "tokens/s", "speed-up", "tokens/round", "discarded", "equal"), rows, title)

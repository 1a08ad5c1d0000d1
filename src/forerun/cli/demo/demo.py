"""forerun demo: the bundled model writes with and without speculation, and the gain is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...engine.methods import DEFAULT_DRAFTER, policy_for
from ...engine.request import RequestOptions
from ..compare import own_questions
from ..flags import takes
from ..method import Method
from ..shared_options import AsJson, open_engine
from ..terminal import note, progress, show, show_json, show_table, write
from ..threads import THREADS
from .measured import CARVED, Contender, Kind, measured
from .told import COLUMNS, FLATTERED, rows, sentence, texts

if TYPE_CHECKING:
    from ...engine.engine import Engine

MODEL = "smollm2"
KINDS = {"repeating": "answers that repeat the prompt", "open": "open questions"}
DEFAULT = Method(DEFAULT_DRAFTER, policy_for(DEFAULT_DRAFTER, None), {}, {})


@takes(THREADS)
def demo(
    repeats: Annotated[int, typer.Option(help="How many times every method answers every prompt.")] = 3,
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens of an answer.")] = 48,
    seconds: Annotated[
        float, typer.Option(help="Time limit for each method and kind of prompts; a slow machine repeats less.")
    ] = 10,
    weights: Annotated[
        str,
        typer.Option(
            help="The form of the model's matrices: bf16, int8 or int4; the best for this machine if not given."
        ),
    ] = "",
    model: Annotated[str, typer.Option(help="A model other than the bundled one.")] = MODEL,
    as_json: AsJson = False,
    **_: Any,
) -> None:
    """Watch the bundled model write, with and without speculation, and see where it helps and where it doesn't."""
    from ...bench.compare import count_runs
    from ...engine.measurement_conditions import conditions
    from ...models.loading.load import open_module

    form = weights or best_weights()
    contenders = [Contender(f"the default ({DEFAULT_DRAFTER})", form, open_engine(model, DEFAULT, {"weights": form}))]
    if not as_json:
        _watch(contenders[0].engine)
    contenders.append(
        Contender("its own int4 copy", "bfloat16", open_engine(model, CARVED, {"dtype": "bfloat16", "device": "cpu"}))
    )
    module = open_module(model, dtype="bfloat16", device="cpu")
    request: RequestOptions = {"max_new_tokens": max_new_tokens}
    kinds: list[Kind] = []
    for name, described in KINDS.items():
        questions = own_questions(name)
        with progress(described, len(contenders) * count_runs(1, questions, repeats)) as tick:
            kinds.append(measured(name, described, contenders, module, questions, request, repeats, seconds, tick))
        if not as_json:
            show_table(COLUMNS, rows(kinds[-1]), f"\n{described[0].upper()}{described[1:]}")
    said = [*map(sentence, kinds), *texts(kinds), *([FLATTERED] if model == MODEL else [])]
    about = conditions(contenders[0].engine, "forerun demo")
    if as_json:
        show_json({"kinds": [kind.as_dict() for kind in kinds], "said": said, **about})
        return
    methods = {"the default": DEFAULT, "its own int4 copy": CARVED}
    show("; ".join(f"{name}: {method.label}" for name, method in methods.items()) + ".")
    show(f"{about['model']}, {about['hardware']}, {about['threads']} threads, greedy decoding.\n")
    for line in said:
        show(line)


def best_weights() -> str:
    """The form in which a small model writes fastest here."""
    from ...models.loading.load import default_device

    return "int4" if default_device().type == "cpu" else "bf16"


def _watch(engine: Engine) -> None:
    """One answer as it is written, first plainly, then through drafting and verification."""
    from ...engine.prompts.questions import has_chat_template

    question = own_questions("repeating")[0]
    show(f"Prompt: {question.turns[0]}\n")
    titles: Mapping[str, bool] = {"Plain decoding": False, "With speculation (green: drafted and accepted)": True}
    for title, speculate in titles.items():
        show(f"{title}:")
        prompt = question.prompt((), has_chat_template(engine.tokenizer))
        for piece in engine.stream(prompt, max_new_tokens=64, speculate=speculate):
            write(piece.text, piece.drafted)
        show("\n")
    note("measuring, in alternating runs")

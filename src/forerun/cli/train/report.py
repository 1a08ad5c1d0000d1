"""forerun train report: what a model's exits are worth, what training cost the whole model, and where drafting pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...models.packed.limits import max_length_of
from ...models.packed.plan import LayerPlan
from ...plotting import check_plotting
from ...train.plots import write_plots
from ..flags import takes
from ..output import check_folder
from ..reports import write_report
from ..shared_options import OPENING, PLAIN, AsJson, Model, measured_with, open_engine
from ..terminal import note, progress, show_json
from ..threads import THREADS
from ..values import at_least, parse
from .lines import SkipBad, counting, read_data, skipped_as_dict
from .tables import show_report

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...models.loading.load import Module
    from ...train.data.examples import Example
    from ...train.layerskip.quality import Quality
    from ...train.layerskip.sweet_spot import SweepPoint


@takes(*OPENING, THREADS)
def report(
    model: Model,
    data: Annotated[Path, typer.Option(help="Held-out examples as JSON lines, as for training.", show_default=False)],
    against: Annotated[str | None, typer.Option(help="The model before training, to show the cost of it.")] = None,
    exit_layer: Annotated[
        list[int] | None, typer.Option(help="Measure drafts from this exit; may be repeated. A few if not given.")
    ] = None,
    lengths: Annotated[str, typer.Option(help="Draft lengths to measure, separated by commas.")] = "1,2,3,4,6,8",
    limit: Annotated[int | None, typer.Option(help="Take at most this many examples.")] = None,
    timed: Annotated[int, typer.Option(help="Measure speed on at most this many prompts; 0: not at all.")] = 16,
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens of an answer.")] = 128,
    vocabulary: Annotated[int, typer.Option(help="Restrict the draft's head to this many tokens (0: all).")] = 0,
    vocabulary_text: Annotated[str, typer.Option(help="A text whose most frequent tokens to take.")] = "",
    output: Annotated[Path | None, typer.Option(help="Write report.json and PNG files into this folder.")] = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Judge a model's exits on held-out examples: loss, agreement, exact answers, acceptance and speed-up.

    Loss and agreement are those of transformers' modules, in --dtype; answers and speed are in --weights, too.
    """
    from ...models.packed.layers import decoder_layers
    from ...train.layerskip.quality import Quality

    at_least(1, limit=limit)
    at_least(0, timed=timed)
    at_least(2, max_new_tokens=max_new_tokens)
    drafted = _lengths(lengths)
    if output is not None:
        check_plotting()
        check_folder(output)
    module = _opened(model, given)
    exits = _chosen(exit_layer, len(decoder_layers(module.model)))
    config, skipped = module.model.config.get_text_config(), counting(skip_bad)
    limits = {"max_length": max_length_of(config), "vocab_size": config.vocab_size, "limit": limit}
    examples = read_data([data], module.tokenizer, module.eos, skipped, **limits)
    before = None if against is None else _before(against, module, examples, max_new_tokens, given)
    qualities = _exits(module, examples)
    del module
    engine = open_engine(model, PLAIN, given)
    drafting = {"vocabulary": vocabulary, "vocabulary_text": vocabulary_text}
    found = _places(engine, examples[:timed], exits, drafted, max_new_tokens, drafting)
    whole = {
        **measured_with(engine, given["weights"]),
        **skipped_as_dict(skipped),
        "data": {
            "file": data.name,
            "examples": len(examples),
            "learnt_tokens": sum(len(one.ids) - one.start for one in examples),
            "timed": min(timed, len(examples)),
        },
        "max_new_tokens": max_new_tokens,
        "drafter_options": drafting,
        "quality": Quality(model, qualities, _answers(engine, examples, max_new_tokens)).as_dict(),
        "before": None if before is None else before.as_dict(),
        "places": [asdict(place) for place in found],
    }
    _publish(whole, output, as_json)


def _lengths(text: str) -> tuple[int, ...]:
    lengths: Any = parse(text, tuple[int, ...], "--lengths")
    if not lengths or min(lengths) < 1:
        raise ValueError(f"--lengths takes draft lengths from 1 on, got {text!r}")
    return tuple(sorted(set(lengths)))


def _chosen(exits: Sequence[int] | None, num_layers: int) -> tuple[int, ...]:
    """The exits to measure, a few if none are given. Raises what LayerPlan.early_exit does on one that there isn't."""
    from ...train.layerskip.sweet_spot import default_exits

    chosen = tuple(exits or default_exits(num_layers))
    for layer in chosen:
        LayerPlan.early_exit(layer, num_layers)
    return chosen


def _opened(model: str, given: Mapping[str, Any]) -> Module:
    from ...models.loading.load import open_module

    note(f"loading {model}")
    return open_module(model, **{name: given[name] for name in ("dtype", "device", "trust_remote_code")})


def _before(
    against: str, module: Module, examples: Sequence[Example], max_new_tokens: int, given: Mapping[str, Any]
) -> Quality:
    """The same of another model, which must read texts as the first one does."""
    from ...train.layerskip.quality import Quality

    other = _opened(against, given)
    sizes = [one.model.config.get_text_config().vocab_size for one in (module, other)]
    if module.vocabulary != other.vocabulary or sizes[0] != sizes[1]:
        raise ValueError(f"{against} has another tokenizer than {module.name}, so their losses can't be compared")
    exits = _exits(other, examples)
    del other
    return Quality(against, exits, _answers(open_engine(against, PLAIN, given), examples, max_new_tokens))


def _exits(module: Module, examples: Sequence[Example]) -> Any:
    from ...train.layerskip.quality import exit_qualities, num_batches

    with progress("reading", num_batches(examples)) as tick:
        return tuple(exit_qualities(module.model, examples, tick))


def _answers(engine: Engine, examples: Sequence[Example], max_new_tokens: int) -> Any:
    from ...train.layerskip.quality import exact_answers

    with progress("answering", len(examples)) as tick:
        return exact_answers(engine, examples, max_new_tokens, tick)


def _places(
    engine: Engine,
    examples: Sequence[Example],
    exits: Sequence[int],
    lengths: Sequence[int],
    max_new_tokens: int,
    drafting: Mapping[str, Any],
) -> list[SweepPoint]:
    from ...train.layerskip.sweet_spot import measure_exits, prompt_of

    if not examples:
        return []
    prompts = [prompt_of(one) for one in examples]
    with progress("timing", len(prompts) * len(exits)) as tick:
        return measure_exits(
            engine, prompts, exits, lengths, max_new_tokens=max_new_tokens, drafter_options=drafting, tick=tick
        )


def _publish(told: dict[str, Any], output: Path | None, as_json: bool) -> None:
    if output is not None:
        write_report(told, output / "report.json", write_plots)
    if as_json:
        show_json(told)
    else:
        show_report(told)

"""A quality report as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..terminal import show, show_table


def show_report(report: Mapping[str, Any]) -> None:
    told, before = report["quality"], report["before"]
    data = report["data"]
    show_table(
        *exits(told, before), title=f"Exits on {data['examples']} examples, {data['learnt_tokens']} learnt tokens"
    )
    show_table(*wholes([told] if before is None else [before, told]), title="The whole models")
    if report["places"]:
        title = f"Speed-up over plain decoding by draft length (median of {data['timed']} prompts)"
        show_table(*speedups(report["places"]), title=title)
        show(sweet_spot(report["places"]))
    show(
        f"{report['model']}, {report['weights']}, {report['runner']}, {report['hardware']}, {report['threads']} threads, "
        f"up to {report['max_new_tokens']} tokens, greedy decoding"
    )


def exits(told: Mapping[str, Any], before: Mapping[str, Any] | None) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A line for each exit; where there is a model before, its values stand beside."""
    names = ("loss", "agreement", "accuracy")
    sides = [("", told), *([] if before is None else [(" before", before)])]
    columns = ("exit", *(f"{name}{side}" for name in names for side, _ in sides))
    rows = []
    for index in range(max(len(side["exits"]) for _, side in sides)):
        row = [str(index + 1)]
        for name in names:
            for _, side in sides:
                known = index < len(side["exits"])
                row.append(f"{side['exits'][index][name]:.3f}" if known else "")
        rows.append(tuple(row))
    return columns, rows


def wholes(sides: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What training cost: perplexity and exact answers of each model's last layer."""
    rows: list[tuple[str, ...]] = [
        (
            side["model"],
            f"{side['perplexity']:.3f}",
            f"{side['answers']['exact']} of {side['answers']['asked']}",
            str(side["answers"]["left_out"]),
        )
        for side in sides
    ]
    return ("model", "perplexity", "exact answers", "too long to ask"), rows


def speedups(places: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A line for each exit layer, with the acceptance of the first tokens of its longest drafts."""
    lengths = sorted({place["length"] for place in places})
    layers = sorted({place["exit_layer"] for place in places})
    by_key = {(place["exit_layer"], place["length"]): place for place in places}
    rows = []
    for layer in layers:
        longest = by_key[layer, lengths[-1]]
        accepted = " ".join(f"{share:.2f}" for share in longest["acceptance_per_position"])
        cells = (f"{by_key[layer, length]['speedup']:.2f}" for length in lengths)
        rows.append((str(layer), f"{longest['draft_cost']:.2f}", *cells, accepted))
    return ("exit", "c", *map(str, lengths), "acceptance by position"), rows


def sweet_spot(places: Sequence[Mapping[str, Any]]) -> str:
    """One sentence."""
    best = max(places, key=lambda place: float(place["speedup"]))
    equal, compared = (sum(place[name] for place in places) for name in ("equal", "prompts"))
    return (
        f"Best: exit {best['exit_layer']}, {best['length']} drafted tokens: {best['speedup']:.2f} x plain decoding "
        f"(predicted {best['predicted_speedup']:.2f}), {best['tokens_per_round']:.2f} tokens a round; {equal} of {compared} "
        "texts equal plain decoding's"
    )

"""A policy report as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..terminal import show, show_table

COLUMNS = ("", "speed-up", "tokens per round", "discarded per token", "verifications per token", "tokens/s")


def line(name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of COLUMNS."""
    rate = found["tokens_per_second"]
    return (
        name,
        f"{found['speedup']:.3f}",
        f"{found['tokens_per_round']:.2f}",
        f"{found['discard_rate']:.2f}",
        f"{found['verification_rate']:.3f}",
        "" if rate is None else f"{rate:.1f}",
    )


def show_report(report: Mapping[str, Any]) -> None:
    for under in report["simulated"]:
        fixed, best = under["fixed"], under["best_fixed"]["k"]
        rules = sorted(under["rules"], key=lambda rule: -float(rule["speedup"]))
        rows = [line(f"best fixed length, k={best}", fixed[best]), *(line(rule["label"], rule) for rule in rules)]
        if "chosen_fixed" in under:
            chosen = under["chosen_fixed"]["k"]
            rows.insert(1, line(f"fixed length chosen beforehand, k={chosen}", fixed[chosen]))
        show_table(COLUMNS, [*rows, line("oracle", under["oracle"])], title=f"Simulated, costs: {under['costs']}")
        show(against_fixed(under))
    if report["timed"]:
        _show_timed(report)


def against_fixed(under: Mapping[str, Any]) -> str:
    """One sentence."""
    rule = max(under["rules"], key=lambda rule: float(rule["speedup"]))
    gain = 100 * (rule["over_best_fixed"] - 1)
    return (
        f"Best rule: {rule['label']}, {gain:+.1f} % against the best fixed length, k={under['best_fixed']['k']} "
        f"({rule['speedup']:.2f} against {under['best_fixed']['speedup']:.2f} x plain decoding)."
    )


def _show_timed(report: Mapping[str, Any]) -> None:
    rows = [
        (
            one["label"],
            f"{one['speedup']:.3f} ({one['speedup_quartiles'][0]:.3f} to {one['speedup_quartiles'][1]:.3f})",
            f"{one['simulated']:.3f}",
            f"{100 * one['difference']:+.1f} %",
            f"{one['tokens_per_second']:.1f}",
            f"{one['equal']} of {one['answers']}",
        )
        for one in report["timed"]
    ]
    columns = ("", "measured speed-up (quartiles)", "simulated", "difference", "tokens/s", "texts as traced")
    show_table(columns, rows, title="On the wall clock")
    worst = max((one["difference"] for one in report["timed"]), key=abs)
    show(f"Worst difference between simulated and measured speed-up: {100 * worst:+.1f} %.")

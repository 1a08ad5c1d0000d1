"""From measurements to a report: a plain dictionary, for the JSON file, the tables (columns, rows) and the plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from .backend import Backend, Sample
from .interleaving import Measurements
from .intervals import number
from .methods import PLAIN
from .ratios import ratios_of
from .scores import Scores
from .suite import Item


def report_of(
    measurements: Measurements,
    backends: Sequence[Backend],
    items: Sequence[Item],
    prompts: Sequence[Sequence[int]],
    parted: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Every backend's scores overall and by category, and the raw times of every prompt.

    parted: by name, what margins.as_dict says of it.
    """
    methods: list[dict[str, Any]] = []
    for backend in backends:
        if backend.name in measurements.samples:
            categories = {category: _scores(measurements, backend, items, category) for category in _categories(items)}
            entry = {"name": backend.name, "baseline": backend.baseline, **backend.about}
            whole = {**_scores(measurements, backend, items, None), **(parted or {}).get(backend.name, {})}
            methods.append({**entry, **whole, "categories": categories})
    samples = {
        name: [
            {"id": item.id, "kind": item.kind, "prompt_tokens": len(prompt), **_times(sample)}
            for item, prompt, sample in zip(items, prompts, taken, strict=True)
        ]
        for name, taken in measurements.samples.items()
    }
    lengths = {"all": [len(prompt) for prompt in prompts]}
    for item, prompt in zip(items, prompts, strict=True):
        lengths.setdefault(item.category, []).append(len(prompt))
    return {
        "mean_prompt_tokens": {name: mean(known) for name, known in lengths.items()},
        "methods": methods,
        "ratios": ratios_of(measurements.samples, backends, items),
        "failed": dict(measurements.failures),
        "samples": samples,
    }


def _categories(items: Sequence[Item]) -> list[str]:
    return list(dict.fromkeys(item.category for item in items))


def _scores(
    measurements: Measurements, backend: Backend, items: Sequence[Item], category: str | None
) -> dict[str, Any]:
    picks = [i for i, item in enumerate(items) if category in (None, item.category)]

    def of(name: str) -> list[Sample]:
        return [measurements.samples[name][i] for i in picks]

    base = of(backend.baseline) if backend.baseline in measurements.samples else None
    return Scores(of(backend.name), base, of(PLAIN)).as_dict()


def _times(sample: Sample) -> dict[str, float]:
    return {
        "decoded": sample.decoded,
        "first_seconds": round(sample.first_seconds, 5),
        "decode_seconds": round(sample.decode_seconds, 5),
    }


Columns = tuple[str, ...]
Rows = list[tuple[str, ...]]


def overall(report: dict[str, Any]) -> tuple[Columns, Rows]:
    """A line for each method: medians over the prompts with 95 % intervals, then totals and the rest."""
    columns = ("method", "format", "tokens/s", "x plain", "total x plain", "total x ours", "predicted")
    rows: Rows = []
    for method in report["methods"]:
        rounds, first = method["acceptance"], method["first_token_seconds"]
        rows.append(
            (
                method["name"],
                method.get("format") or report.get("weights", "-"),
                _with_interval(method, "tokens_per_second", 1),
                _with_interval(method, "speedup", 2),
                number(method["total_speedup"], 2),
                number(method["against_plain"], 2),
                number(method.get("predicted_speedup"), 2),
                "-" if first is None else f"{first * 1000:.0f}",
                "-" if rounds is None else f"{rounds['tokens_per_round']:.2f}",
                "-" if method["identical"] is None else f"{method['identical_prompts']}/{method['prompts']}",
                number(method["match_rate"], 3),
                _margin(method),
                f"{method['peak_memory_mb']:.0f}",
            )
        )
    return (*columns, "first ms", "per round", "same", "match", "margin", "MB"), rows


def _margin(method: dict[str, Any]) -> str:
    """The largest one at a first difference."""
    if not method.get("differences"):
        return "-"
    return "unknown" if method["largest_margin"] is None else f"{method['largest_margin']:.2g}"


def by_category(report: dict[str, Any]) -> tuple[Columns, Rows]:
    """A line for each method: median tokens/s, and the speed-up over plain decoding of the same weights."""
    columns = ("method", *report["methods"][0]["categories"])
    rows = [(method["name"], *map(_cell, method["categories"].values())) for method in report["methods"]]
    return columns, rows


def _cell(scores: dict[str, Any]) -> str:
    if scores["tokens_per_second"] is None:
        return "-"
    ratio = "" if scores["speedup"] is None else f" x {scores['speedup']:.2f}"
    return f"{scores['tokens_per_second']:.1f}{ratio}"


def _with_interval(scores: dict[str, Any], name: str, digits: int) -> str:
    if scores[name] is None:
        return "-"
    low, high = scores[f"{name}_interval"]
    return f"{scores[name]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def other_engines(report: dict[str, Any]) -> tuple[Columns, Rows]:
    """A line for each mode of another engine: what ran, on which file, in which format, how."""
    rows: Rows = [
        (
            method["name"],
            ", ".join(f"{package} {version}" for package, version in method["versions"].items()),
            method["model"],
            method["format"],
            " ".join([method["mode"], *_more(method)]).strip(),
        )
        for method in report["methods"]
        if "versions" in method
    ]
    return ("method", "versions", "file", "format", "settings"), rows


def _more(method: dict[str, Any]) -> list[str]:
    drafted = {"draft": method["draft"]} if "draft" in method else {}
    return [f"{name}={value}" for name, value in {**drafted, **method["settings"]}.items()]

"""Measured costs, kept in the user's cache: once measured for a model on a machine, they are read from it.

A file belongs to one set of conditions: model, number format, device, threads, machine, versions. It holds the target's
cost, those of the plans asked for so far, and of one draft model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.cost import Cost, Costs
from ..engine.engine import Engine
from ..engine.measurement_conditions import conditions
from ..models.files.cache import tell_unkept
from ..models.files.locate import locate
from ..models.files.whole import write_whole
from ..models.gguf.convert import cache_directory
from ..models.packed.plan import FULL, LayerPlan
from ..models.packed.runner import HFRunner
from .calibrate import Subject, measure


@dataclass(frozen=True, slots=True)
class Opened:
    """A loaded model, the name or path it was loaded by, and its smaller weights, "" for its own."""

    model: str
    engine: Engine
    weights: str = ""

    @property
    def format(self) -> str:
        return self.weights or str(self.engine.runner.dtype).removeprefix("torch.")

    def conditions(self) -> dict[str, Any]:
        """What the cost of a forward depends on."""
        runner = self.engine.runner
        told = conditions(self.engine, "")
        del told["command"], told["padded"]
        return {
            **told,
            **_identity(self.model),
            "runner": type(runner).__name__,
            "kernels": runner.kernels,
            "weights": self.format,
        }


def calibrated(
    target: Opened,
    plans: Sequence[LayerPlan] = (),
    draft: Opened | None = None,
    *,
    refresh: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> tuple[Costs, bool]:
    """The costs of the target, its plans and the draft, in this order, and whether they had been measured before.

    Missing costs are measured together with the target's, so that ratios come from the same minutes.
    """
    about = _about(target, draft)
    name = target.engine.name
    for plan in plans:
        target.engine.runner.check_plan(plan)
        if plan.weights:
            target.engine.runner.add_weights(plan.weights)
    subjects = [_subject(target, name, plan) for plan in (FULL, *plans)]
    if draft is not None:
        same = draft.engine.name == name
        subjects.append(_subject(draft, f"{name} (draft)" if same else draft.engine.name))
    file = _file(about)
    known = {} if refresh else _read(file)
    missing = [subject for subject in subjects if subject.key not in known]
    if missing:
        wanted = missing if missing[0] is subjects[0] else [subjects[0], *missing]
        known.update(_by_key(measure(wanted, tick).costs))
        _write(file, about, list(known.values()))
    return Costs(tuple(known[subject.key] for subject in subjects)), not missing


def pad(opened: Opened) -> bool:
    """Pad forwards of transformers' modules to the fastest number of rows, by a kept calibration. Returns whether it does.

    Nothing is measured: without a calibration of the model alone, and on the lean decoder, nothing changes.
    """
    return _pad(opened, _kept_cost(opened))


def use_kept_cost(opened: Opened) -> bool:
    """The same, and let drafters know what the model's forwards cost, as they then run."""
    cost = _kept_cost(opened)
    padded = _pad(opened, cost)
    opened.engine.runner.cost = cost.padded() if cost is not None and padded else cost
    return padded


def _pad(opened: Opened, cost: Cost | None) -> bool:
    runner = opened.engine.runner
    if not isinstance(runner, HFRunner):
        return False
    gains = cost is not None and any(cost.best_rows(rows) != rows for rows in cost.rows)
    runner.padding = cost.best_rows if cost is not None and gains else None
    return gains


def _kept_cost(opened: Opened) -> Cost | None:
    return _read(_file(_about(opened))).get(_subject(opened, opened.engine.name).key)


def _about(target: Opened, draft: Opened | None = None) -> dict[str, Any]:
    return {"target": target.conditions(), "draft": None if draft is None else draft.conditions()}


def _subject(opened: Opened, name: str, plan: LayerPlan = FULL) -> Subject:
    return Subject(opened.engine.runner, name, opened.format, plan)


def _identity(model: str) -> dict[str, Any]:
    """The model's location and size: another model may have the same name."""
    path = locate(model).resolve()
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return {"path": str(path), "bytes": sum(file.stat().st_size for file in files)}


def _file(about: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    name = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in about["target"]["model"])
    return cache_directory() / "costs" / f"{name}-{digest}.json"


def _by_key(costs: Sequence[Cost]) -> dict[tuple[str, str, str], Cost]:
    return {cost.key: cost for cost in costs}


def _read(file: Path) -> dict[tuple[str, str, str], Cost]:
    """The contents of the file; empty if it is missing or can't be read, so that the costs are measured again."""
    try:
        return _by_key(Costs.from_dict(json.loads(file.read_text(encoding="utf-8"))).costs)
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write(file: Path, about: Mapping[str, Any], costs: Sequence[Cost]) -> None:
    """If the cache can't be written, stderr says so."""
    data = {**about, **Costs(tuple(costs)).as_dict()}
    try:
        write_whole(file, json.dumps(data, indent=1))
    except OSError as error:
        tell_unkept(file.parent, error)

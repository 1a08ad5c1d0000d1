"""Measured costs, kept in the user's cache: once measured for a model on a machine, they are read from there.

A file belongs to one set of conditions: model, number format, device, threads, machine, versions. It holds the target's
cost, those of the plans asked for so far, and of one draft model.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.cost import Cost, Costs
from ..engine.conditions import conditions
from ..engine.engine import Engine
from ..models.files.cache import tell_unkept
from ..models.files.locate import locate
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
        """What decides about the cost of a forward."""
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

    What is missing is measured together with the target anew, so that ratios come from the same minutes.
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
    """Let transformers' modules run as many rows as they run fastest with, where a kept calibration says so.

    Whether they do from now on. Measures nothing: without a calibration of the model alone, and on the lean decoder,
    nothing changes.
    """
    runner = opened.engine.runner
    if not isinstance(runner, HFRunner):
        return False
    cost = _kept_cost(opened)
    gains = cost is not None and any(cost.best_rows(rows) != rows for rows in cost.rows)
    runner.padding = cost.best_rows if cost is not None and gains else None
    return gains


def tell_cost(opened: Opened) -> None:
    """Let drafters know what the model's forwards cost, as they run, where a kept calibration of it alone says so."""
    runner, cost = opened.engine.runner, _kept_cost(opened)
    padded = isinstance(runner, HFRunner) and runner.padding is not None
    runner.cost = cost.padded() if cost is not None and padded else cost


def _kept_cost(opened: Opened) -> Cost | None:
    return _read(_file(_about(opened))).get(_subject(opened, opened.engine.name).key)


def _about(target: Opened, draft: Opened | None = None) -> dict[str, Any]:
    return {"target": target.conditions(), "draft": None if draft is None else draft.conditions()}


def _subject(opened: Opened, name: str, plan: LayerPlan = FULL) -> Subject:
    return Subject(opened.engine.runner, name, opened.format, plan)


def _identity(model: str) -> dict[str, Any]:
    """Where the model is and how large: another model under the same name has other weights."""
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
    """What the file holds; nothing if there is none, or none that can be read: then it is measured again."""
    try:
        return _by_key(Costs.from_dict(json.loads(file.read_text(encoding="utf-8"))).costs)
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write(file: Path, about: Mapping[str, Any], costs: Sequence[Cost]) -> None:
    """Under another name first: a reader never sees half a file. Where the cache can't be written, stderr says so."""
    data = {**about, **Costs(tuple(costs)).as_dict()}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=file.parent) as folder:
            partial = Path(folder) / file.name
            partial.write_text(json.dumps(data, indent=1), encoding="utf-8")
            os.replace(partial, file)
    except OSError as error:
        tell_unkept(file.parent, error)

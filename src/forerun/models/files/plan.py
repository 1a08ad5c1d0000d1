"""Skip sets as JSON files: {"attention": [3, 5], "mlp": [7]}, with a name and whatever else is worth keeping in "about"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..packed.plan import LayerPlan

KEYS = ("name", "attention", "mlp", "about")


def read_plan(path: str | Path, num_layers: int) -> LayerPlan:
    """The skip set of a file. Raises ValueError that names the file where it holds none for so many layers."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ValueError(f"plan must be a JSON file with a skip set, got {path}: {error}") from error
    if not isinstance(data, dict) or not set(data) <= set(KEYS):
        raise ValueError(f"{path}: a plan is a JSON object with the keys {', '.join(KEYS)}, got {str(data)[:80]}")
    try:
        return LayerPlan.skip(num_layers, *(_layers(data.get(kind, []), kind) for kind in ("attention", "mlp")))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_plan(path: str | Path, plan: LayerPlan, name: str = "", about: Mapping[str, Any] | None = None) -> None:
    """Write what read_plan reads. Only skip sets can be kept: ValueError on an exit, other weights or a part of the head."""
    if plan != LayerPlan(plan.attention, plan.mlp):
        raise ValueError(f"a plan file holds skipped sublayers and nothing else, got {plan}")
    data = {"name": name, "attention": sorted(plan.attention), "mlp": sorted(plan.mlp), "about": dict(about or {})}
    Path(path).write_text(json.dumps(data) + "\n", encoding="utf-8")


def _layers(value: Any, kind: str) -> list[int]:
    if not isinstance(value, list) or any(type(layer) is not int for layer in value):
        raise ValueError(f"{kind} must be a list of layer numbers, got {value}")
    return value

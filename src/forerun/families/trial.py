"""One family in this process: a small model of it, its own greedy text, and forerun's, with every way of drafting."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..engine.engine import Engine, load
from ..errors import ForerunError, reason_of
from ..models.files.quiet import quiet
from ..models.lean.shape import lean_applies
from ..models.loading.checks import reasons
from ..models.packed.plan import LayerPlan
from .small import VOCABULARY, small_model
from .table import REFUSED, RUNS, UNMADE, WRONG
from .variants import variants

LENGTHS = (21, 40)
NEW = 24
# a difference at a place where the model's own two best tokens are closer than this is rounding
TIE = 1e-3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a family. runners are those that gave the model's own text, skipping whether layers can be left out.

    variants: how many other configurations gave it too; refused: those that are refused, with the reason.
    """

    result: str
    reason: str = ""
    runners: tuple[str, ...] = ()
    skipping: bool = False
    variants: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def try_everything(family: str, others: bool = True) -> Outcome:
    """try_family, its variants if others is set, and what its structure says where it can't be built small."""
    outcome = try_family(family)
    if outcome.result == UNMADE:
        return by_structure(family) or outcome
    if outcome.result != RUNS or not others:
        return outcome
    right = 0
    refused: dict[str, str] = {}
    for name, changes in variants(family).items():
        other = try_family(family, changes)
        if other.result == WRONG:
            return Outcome(WRONG, f"with {name}: {other.reason}")
        if other.result == REFUSED:
            refused[name] = other.reason
        right += other.result == RUNS
    return replace(outcome, variants=right, refused=refused)


def by_structure(family: str) -> Outcome | None:
    """Refused, if the family's default configuration alone says so; its weights are not made."""
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family]())
        reason = next((reason for reason in reasons(model) if "spread over meta" not in reason), None)
    except Exception:
        return None
    return None if reason is None else Outcome(REFUSED, f"{type(model).__name__}: {reason}")


def try_family(family: str, changes: Mapping[str, Any] | None = None) -> Outcome:
    """Build a small model of the family and compare what it writes by itself with what it writes through forerun."""
    try:
        model = small_model(family, changes)
        model.generation_config.eos_token_id = None
        own_text(model, prompts(NEW + 1)[0])
    except Exception as error:
        return Outcome(UNMADE, reason_of(error))
    try:
        engine = load(model)
    except ForerunError as error:
        return Outcome(REFUSED, reason_of(error))
    try:
        return compare(model, engine)
    except ForerunError as error:
        return Outcome(REFUSED, reason_of(error))
    except Exception as error:
        return Outcome(WRONG, f"{type(error).__name__}: {reason_of(error)}")


def compare(model: Any, engine: Engine) -> Outcome:
    """Through both runners and with all drafters, as far as the model allows each."""
    limit = engine.runner.max_length
    if limit is not None and limit <= NEW:
        return Outcome(REFUSED, f"its texts hold at most {limit} tokens")
    given = prompts(limit)
    expected = [own_text(model, prompt) for prompt in given]
    skipping = can_skip(engine)
    for way, written in texts(engine, given, skipping):
        if fault := difference(model, expected, written):
            return Outcome(WRONG, f"{way}: {fault}")
    lean = lean_of(model)
    if lean is None:
        return Outcome(RUNS, runners=("hf",), skipping=skipping)
    for way, written in texts(lean, given, skipping=True):
        if fault := difference(model, expected, written):
            return Outcome(WRONG, f"lean, {way}: {fault}")
    return Outcome(RUNS, runners=("lean", "hf"), skipping=skipping)


def lean_of(model: Any) -> Engine | None:
    """The same weights on the lean decoder; None where it doesn't take the model."""
    if lean_applies(model.config.get_text_config()) is not None:
        return None
    with quiet(), tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        try:
            return load(Path(folder), dtype="float32", device="cpu", runner="lean")
        except ForerunError:
            return None


def can_skip(engine: Engine) -> bool:
    try:
        engine.runner.check_plan(LayerPlan.early_exit(1, engine.runner.num_layers))
    except (ForerunError, ValueError):
        return False
    return True


def texts(engine: Engine, given: list[list[int]], skipping: bool) -> Iterator[tuple[str, list[list[int]]]]:
    """Each way of drafting with what it writes for all prompts in a batch."""
    ways: list[tuple[str, str, dict[str, Any]]] = [("none", "none", {}), ("lookup", "lookup", {})]
    if skipping:
        half = engine.runner.num_layers // 2
        ways.append(("early exit", "self", {"exit_layer": half}))
        ways.append(("skipped sublayers", "self", {"skip_attention": (1,), "skip_mlp": (half,)}))
    for way, drafter, options in ways:
        method = engine.using(drafter, drafter_options=options)
        results = method.generate([list(prompt) for prompt in given], max_new_tokens=NEW, ignore_eos=True)
        yield way, [[*prompt, *result.ids] for prompt, result in zip(given, results, strict=True)]


def prompts(longest: int | None) -> list[list[int]]:
    """Random tokens, the special ones aside; with their answers no longer than that."""
    generator = torch.Generator().manual_seed(0)
    room = max(LENGTHS) if longest is None else max(1, longest - NEW)
    sizes = [min(length, room) for length in LENGTHS]
    return [torch.randint(5, VOCABULARY - 7, (size,), generator=generator).tolist() for size in sizes]


@torch.no_grad()
def own_text(model: Any, prompt: list[int]) -> list[int]:
    """What transformers' own generate writes."""
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    written: Tensor = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False, pad_token_id=0)
    return list(map(int, written[0]))


@torch.no_grad()
def difference(model: Any, expected: list[list[int]], actual: list[list[int]]) -> str:
    """Where texts differ by more than rounding; "" if nowhere."""
    for own, other in zip(expected, actual, strict=True):
        place = next((i for i, (one, two) in enumerate(zip(own, other, strict=False)) if one != two), None)
        if place is None:
            if len(own) != len(other):
                return f"{len(other)} tokens, not {len(own)}"
            continue
        row = model(torch.tensor([own[:place]]), use_cache=False).logits[0, -1]
        margin = float((row[own[place]] - row[other[place]]) / row.std())
        if not abs(margin) <= TIE:
            return f"token {place} of {len(own)} is another one, by {margin:.2g} of the logits' spread"
    return ""

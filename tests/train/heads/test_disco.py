from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.core.cost import Cost, Costs, Point
from forerun.core.identity import Identity, Pair
from forerun.core.values import Signals
from forerun.models.files.classifier_heads import LOOKAHEAD, LookaheadClassifier, read_classifier_head
from forerun.traces.read import Position, Trace, TracedAnswer, TraceHeader
from forerun.train.heads.disco import DiscoRun, fit_classifier, steps_of, train_disco
from forerun.train.heads.recipes import DiscoRecipe

PAIR = Pair(Identity("llama", 4, 32, 97, "0" * 16), "self up to layer 2")
HEADER = TraceHeader(
    model="tiny",
    pair=PAIR,
    drafter="self",
    drafter_options={"exit_layer": 2},
    depth=4,
    top=3,
    max_new_tokens=12,
    hidden=False,
    asked=30,
    costs=None,
    about={},
)
QUICK = DiscoRecipe(top=2, width=8, epochs=15, rows=64, learning_rate=1e-2)


def signals(best: float) -> Signals:
    return Signals(best, best, 1 - best, (best, (1 - best) / 2, (1 - best) / 4))


def traced(prompt: int, length: int = 12, depth: int = 4) -> TracedAnswer:
    """A token that its law is sure of, 0.9 against 0.3, is accepted with 0.95 against 0.3."""
    rng = random.Random(prompt)
    positions = []
    for index in range(length - 1):
        sure = [rng.random() < 0.6 for _ in range(depth)]
        right = [rng.random() < (0.95 if one else 0.3) for one in sure]
        agreed = min((right + [False]).index(False), length - 1 - index)
        positions.append(Position((1,) * depth, tuple(signals(0.9 if one else 0.3) for one in sure), agreed))
    return TracedAnswer(str(prompt), "any", (prompt, 2, 3), tuple(range(length)), length, tuple(positions))


def trace(count: int = 30, header: TraceHeader = HEADER) -> Trace:
    return Trace(Path("trace.jsonl"), header, tuple(traced(prompt) for prompt in range(count)))


def run(tmp_path: Path, *traces: Trace, **given: Any) -> DiscoRun:
    options = {"recipe": QUICK, "cost": 0.2, **given}
    return DiscoRun(traces=traces or (trace(),), output=tmp_path / "classifier", **options)


def test_a_classifier_beats_the_constant_held_out(tmp_path: Path) -> None:
    report = train_disco(run(tmp_path))

    assert report.cross_entropy < 0.9 * report.constant
    assert (report.answers, report.held_out) == (24, 6)
    classifier = LookaheadClassifier(read_classifier_head(LOOKAHEAD, tmp_path / "classifier"))
    sure, unsure = (classifier.accepted(one.top[:2], one.entropy, 2) for one in (signals(0.9), signals(0.3)))
    assert (sure, unsure) == (pytest.approx(0.95, abs=0.12), pytest.approx(0.3, abs=0.15))
    assert unsure < report.tau < sure


def test_what_was_trained_is_in_the_file(tmp_path: Path) -> None:
    report = train_disco(run(tmp_path))
    file = read_classifier_head(LOOKAHEAD, tmp_path / "classifier")

    assert file.pair == PAIR
    assert file.threshold == report.tau
    assert file.trained["cross_entropy"] == report.cross_entropy
    assert file.trained["recipe"]["width"] == 8


def test_dear_drafts_get_a_higher_threshold(tmp_path: Path) -> None:
    cheap, dear = (train_disco(run(tmp_path / str(cost), cost=cost)) for cost in (0.02, 0.9))

    assert cheap.tau <= dear.tau
    assert cheap.time_per_token < dear.time_per_token


def test_the_trace_s_own_costs_are_taken_where_none_is_given(tmp_path: Path) -> None:
    about = ("tiny", "lean", "float32")
    target = Cost(*about, "full", (Point(1, 0, 10.0), Point(5, 0, 12.0)))
    draft = Cost(*about, "draft self", (Point(1, 0, 2.0), Point(4, 0, 6.0)))
    measured = replace(HEADER, costs=Costs((target, draft)))

    assert train_disco(run(tmp_path, trace(header=measured), cost=None)).cost == pytest.approx(6 / 4 / 10)
    with pytest.raises(ValueError, match=r"trace.jsonl measured no cost of drafting; give one"):
        train_disco(run(tmp_path / "other", cost=None))


def test_steps_are_labelled_up_to_what_the_answer_tells() -> None:
    position = Position((1, 2, 3), (signals(0.9), signals(0.6), signals(0.3)), agreed=1)

    assert [label for _, label in steps_of(position, 3, 2)] == [1.0, 0.0, 0.0]
    assert [label for _, label in steps_of(position, 1, 2)] == [1.0]
    features = [one for one, _ in steps_of(position, 3, 2)]
    assert features[1] == pytest.approx((0.6, 0.2, 0.4, 2.0))


def test_steps_without_a_law_keep_their_place_and_are_left_out() -> None:
    position = Position((1, 2), (None, signals(0.6)), agreed=2)

    assert [(one[-1], label) for one, label in steps_of(position, 2, 2)] == [(2.0, 1.0)]


def test_the_best_epoch_held_out_is_kept() -> None:
    features = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    labels = (features[:, 0] > 0).float()

    _, epoch, own = fit_classifier(features, labels, features, 1 - labels, QUICK)
    assert epoch == 0
    assert own == pytest.approx(0.693, abs=0.02)
    ticks: list[int] = []
    weights, epoch, own = fit_classifier(features, labels, features, labels, QUICK, lambda: ticks.append(1))
    assert epoch > 5
    assert own < 0.3
    assert len(ticks) == QUICK.epochs
    assert not any(tensor.requires_grad for tensor in weights.values())


def test_the_same_seed_gives_the_same_classifier(tmp_path: Path) -> None:
    one, other = (train_disco(run(tmp_path / name)) for name in ("one", "other"))

    assert replace(one, output="", seconds=0) == replace(other, output="", seconds=0)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (Pair(replace(PAIR.target, vocabulary="3" * 16, weights="1" * 16), PAIR.drafter), "traced with another model"),
        (Pair(PAIR.target, "self whole"), "traced with another model, tokenizer or drafter"),
    ],
)
def test_traces_of_different_pairs_are_refused(tmp_path: Path, pair: Pair, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_disco(run(tmp_path, trace(), trace(header=replace(HEADER, pair=pair))))


def test_traces_that_give_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trained on at least one trace"):
        train_disco(DiscoRun(traces=(), recipe=QUICK, output=tmp_path / "c"))
    with pytest.raises(ValueError, match="at least two different prompts are needed"):
        train_disco(run(tmp_path, trace(1)))
    with pytest.raises(
        ValueError, match="holds 3 of the largest probabilities and 10 are to be read; take a smaller top"
    ):
        train_disco(run(tmp_path, recipe=DiscoRecipe()))
    with pytest.raises(ValueError, match=r"held-out part must be above 0 and below 1, got 1"):
        train_disco(run(tmp_path, held_out=1.0))
    copied = [replace(one, positions=(Position((1,), (None,), 1),) * 11) for one in trace(4).answers]
    with pytest.raises(ValueError, match="hold no drafted token with a law"):
        train_disco(run(tmp_path, Trace(Path("t"), HEADER, tuple(copied))))


@pytest.mark.parametrize("name", ["top", "width", "epochs", "rows", "learning_rate"])
def test_a_recipe_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name.replace('_', ' ')} must be"):
        DiscoRecipe(**{name: 0})

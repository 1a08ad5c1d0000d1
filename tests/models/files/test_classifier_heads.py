from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from forerun.core.identity import Identity, Pair
from forerun.errors import InvalidModelFile
from forerun.models.files.classifier_heads import (
    ACCEPTANCE,
    LOOKAHEAD,
    AcceptanceHead,
    ClassifierHeadFile,
    LookaheadClassifier,
    acceptance_logits,
    calibrated,
    depth_of,
    lookahead_logits,
    read_classifier_head,
    write_classifier_head,
)
from forerun.testing import save_tiny_classifier, save_tiny_head

TARGET = Identity("llama", 4, 32, 97, "0" * 16, "1" * 16)
PAIR = Pair(TARGET, "self up to layer 2")
WIDTH = 6


@pytest.fixture
def head(tmp_path: Path) -> ClassifierHeadFile:
    return read_classifier_head(ACCEPTANCE, save_tiny_head(tmp_path / "head", PAIR, WIDTH, depth=2))


def test_a_head_comes_back_as_it_was_written(tmp_path: Path, head: ClassifierHeadFile) -> None:
    told = ClassifierHeadFile(PAIR, head.weights, 0.25, 3.0, {"texts": 9})
    write_classifier_head(ACCEPTANCE, told, tmp_path / "again")

    found = read_classifier_head(ACCEPTANCE, tmp_path / "again")

    assert (found.pair, found.threshold, found.reject_weight, found.trained) == (PAIR, 0.25, 3.0, {"texts": 9})
    assert found.weights.keys() == head.weights.keys()
    assert all(torch.equal(found.weights[name], head.weights[name]) for name in head.weights)


def test_weights_are_kept_in_float32(tmp_path: Path, head: ClassifierHeadFile) -> None:
    half = {name: tensor.bfloat16() for name, tensor in head.weights.items()}
    write_classifier_head(ACCEPTANCE, ClassifierHeadFile(PAIR, half, 0.5), tmp_path / "half")

    assert {tensor.dtype for tensor in read_classifier_head(ACCEPTANCE, tmp_path / "half").weights.values()} == {
        torch.float32
    }


def test_a_head_is_blocks_of_their_own_and_a_linear_layer(head: ClassifierHeadFile) -> None:
    x = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(1))
    weights = {**head.weights, "scale": torch.tensor([0.5])}
    expected = x * 0.5
    for block in (0, 1):
        inner = expected @ weights[f"blocks.{block}.weight"].T + weights[f"blocks.{block}.bias"]
        expected = expected + inner * inner.sigmoid()
    expected = expected @ weights["out.weight"].T + weights["out.bias"]

    assert depth_of(weights) == 2
    assert not torch.equal(weights["blocks.0.weight"], weights["blocks.1.weight"])
    torch.testing.assert_close(acceptance_logits(weights, x), expected)
    torch.testing.assert_close(acceptance_logits(weights, x.bfloat16()), expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("accepted", "weight"), [(0.9, 6.0), (0.5, 3.0), (0.99, 6.0), (0.2, 1.0), (0.0, 6.0), (1.0, 6.0)]
)
def test_calibration_undoes_what_the_weight_does_to_the_optimum(accepted: float, weight: float) -> None:
    says = torch.tensor([accepted / (accepted + weight * (1 - accepted))])

    assert float(calibrated(says, weight)) == pytest.approx(accepted, abs=1e-6)


def test_the_minimum_of_the_weighted_loss_is_what_calibration_expects() -> None:
    label, weight = 0.9, 6.0
    grid = torch.linspace(0.001, 0.999, 999)
    loss = -(weight * (1 - label) * (1 - grid).log() + label * grid.log())

    assert float(calibrated(grid[loss.argmin()], weight)) == pytest.approx(label, abs=2e-3)


def test_a_head_predicts_a_calibrated_probability(head: ClassifierHeadFile) -> None:
    x = torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(1))
    raw = float(acceptance_logits(head.weights, x).softmax(-1)[0, 1])

    assert AcceptanceHead(head, "it", calibrate=False).accepted(x) == pytest.approx(raw)
    assert AcceptanceHead(head, "it").accepted(x) == pytest.approx(6 * raw / (1 + 5 * raw))


def test_of_several_rows_the_surest_counts(head: ClassifierHeadFile) -> None:
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1))
    alone = [AcceptanceHead(head, "it").accepted(row[None]) for row in x]

    assert AcceptanceHead(head, "it").accepted(x) == pytest.approx(max(alone))


def test_another_hidden_size_is_refused(head: ClassifierHeadFile) -> None:
    message = (
        "acceptance head runs/h reads hidden states of 6 numbers and the drafter's have 7; train one for this drafter"
    )
    with pytest.raises(ValueError, match=message):
        AcceptanceHead(head, "runs/h").accepted(torch.zeros(1, 7))


def test_a_classifier_reads_standardised_features(tmp_path: Path) -> None:
    file = read_classifier_head(LOOKAHEAD, save_tiny_classifier(tmp_path / "c", PAIR, top=2))
    weights = {
        **file.weights,
        "mean": torch.tensor([0.1, 0.2, 1.0, 3.0]),
        "deviation": torch.tensor([2.0, 1.0, 4.0, 5.0]),
    }
    x = (torch.tensor([0.6, 0.3, 1.5, 2.0]) - weights["mean"]) / weights["deviation"]
    inner = (weights["in.weight"] @ x + weights["in.bias"]).clamp_min(0)
    expected = weights["out.weight"] @ inner + weights["out.bias"]

    classifier = LookaheadClassifier(ClassifierHeadFile(PAIR, weights, 0.5))
    assert classifier.top == 2
    assert classifier.accepted((0.6, 0.3), 1.5, 2) == pytest.approx(float(expected.sigmoid()))
    torch.testing.assert_close(lookahead_logits(weights, torch.tensor([[0.6, 0.3, 1.5, 2.0]])), expected)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Pair(TARGET, "self whole"), "trained for another drafter: self up to layer 2 there, self whole here"),
        (Pair(TARGET, ""), "another drafter: self up to layer 2 there, one that can't be told here"),
        (Pair(replace(TARGET, weights="2" * 16), PAIR.drafter), "another target: its weights is 0+ here and 2+"),
        (Pair(replace(TARGET, vocabulary="3" * 16), PAIR.drafter), "another target: its vocabulary is 1+ here and 3+"),
    ],
)
def test_another_pair_is_refused(other: Pair, message: str) -> None:
    PAIR.check(PAIR, "policy")
    with pytest.raises(ValueError, match=message):
        PAIR.check(other, "policy")


def test_a_pair_survives_json() -> None:
    assert Pair.from_dict(json.loads(json.dumps(PAIR.as_dict()))) == PAIR
    with pytest.raises(ValueError, match="a pair needs a target and a drafter, got drafter"):
        Pair.from_dict({"drafter": "self"})


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("blocks.1.weight", torch.zeros(WIDTH, WIDTH + 1)),
        ("blocks.0.bias", torch.zeros(2)),
        ("out.bias", torch.zeros(3)),
        ("more", torch.zeros(3)),
    ],
)
def test_weights_that_do_not_fit_each_other_are_refused(
    tmp_path: Path, head: ClassifierHeadFile, name: str, tensor: torch.Tensor
) -> None:
    write_classifier_head(ACCEPTANCE, ClassifierHeadFile(PAIR, {**head.weights, name: tensor}, 0.5), tmp_path / "odd")
    with pytest.raises(
        InvalidModelFile, match="holds no acceptance head that can be read: its weights have the shapes"
    ):
        read_classifier_head(ACCEPTANCE, tmp_path / "odd")


@pytest.mark.parametrize(("threshold", "weight"), [(1.5, 6.0), (0.5, 0.0), (float("nan"), 1.0)])
def test_numbers_that_mean_nothing_are_refused(
    tmp_path: Path, head: ClassifierHeadFile, threshold: float, weight: float
) -> None:
    write_classifier_head(ACCEPTANCE, ClassifierHeadFile(PAIR, head.weights, threshold, weight), tmp_path / "odd")
    with pytest.raises(InvalidModelFile, match="its threshold is"):
        read_classifier_head(ACCEPTANCE, tmp_path / "odd")


def test_one_kind_is_not_read_as_the_other(tmp_path: Path) -> None:
    save_tiny_classifier(tmp_path / "c", PAIR)
    with pytest.raises(ValueError, match=r"no acceptance head at .*c: there is no head.json"):
        read_classifier_head(ACCEPTANCE, tmp_path / "c")

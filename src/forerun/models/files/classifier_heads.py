"""Small trained classifier heads that predict how far a draft will be accepted, and their files.

An acceptance head reads a drafter's hidden state, a lookahead classifier the shape of its law. Both belong to one pair of
target and drafter, and are refused for another.

Sources: Huang et al., SpecDec++, arXiv 2405.19715, section 3; Mamou et al., DISCO, arXiv 2405.04304.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from ...core.identity import Pair
from .saved import Kind, read_saved, write_saved

ACCEPTANCE = Kind("acceptance head", "head")
LOOKAHEAD = Kind("lookahead classifier", "classifier")


@dataclass(frozen=True, slots=True, eq=False)
class ClassifierHeadFile:
    """A head's weights, its target and drafter, the threshold chosen in training, and facts of the training.

    reject_weight: how much more a rejection counted than an acceptance in training.
    """

    pair: Pair
    weights: Mapping[str, Tensor]
    threshold: float
    reject_weight: float = 1.0
    trained: Mapping[str, Any] = field(default_factory=dict)


def write_classifier_head(kind: Kind, head: ClassifierHeadFile, directory: Path) -> None:
    """Raises ValueError where that fails or the directory is there; nothing half written is left."""
    about = {
        "pair": head.pair.as_dict(),
        "threshold": head.threshold,
        "reject_weight": head.reject_weight,
        "trained": dict(head.trained),
    }
    write_saved(kind, directory, {name: tensor.float() for name, tensor in head.weights.items()}, about)


def read_classifier_head(kind: Kind, directory: Path) -> ClassifierHeadFile:
    """Raises ModelNotFound, and InvalidModelFile on a file that is none of ours, truncated, or of a newer version."""
    with read_saved(kind, directory) as (about, weights):
        threshold, reject_weight = float(about["threshold"]), float(about["reject_weight"])
        if not 0 <= threshold <= 1 or not reject_weight > 0:
            raise ValueError(f"its threshold is {threshold} and its reject weight {reject_weight}")
        (_acceptance_shape if kind is ACCEPTANCE else _lookahead_shape)(weights)
        return ClassifierHeadFile(
            Pair.from_dict(about["pair"]), weights, threshold, reject_weight, about.get("trained", {})
        )


def acceptance_logits(weights: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
    """Logits [n, 2], rejected and accepted, of hidden states [n, D]: D blocks x + SiLU(W x + b), then a linear layer."""
    x = hidden.float() * weights["scale"]
    for block in range(depth_of(weights)):
        x = x + silu(linear(x, weights[f"blocks.{block}.weight"], weights[f"blocks.{block}.bias"]))
    return linear(x, weights["out.weight"], weights["out.bias"])


def depth_of(weights: Mapping[str, Tensor]) -> int:
    """How many blocks an acceptance head has."""
    return sum(name.startswith("blocks.") and name.endswith(".weight") for name in weights)


def calibrated(accepted: Tensor, reject_weight: float) -> Tensor:
    """The probability that underlies the output of a head trained with a reject weight w.

    Its optimum for a token accepted with probability a is a / (a + w (1 - a)); this inverts it.
    """
    return reject_weight * accepted / (1 + (reject_weight - 1) * accepted)


def lookahead_features(top: Sequence[float], entropy: float, position: int) -> tuple[float, ...]:
    """What a lookahead classifier reads from a draft step: the law's largest probabilities, entropy, position from 1."""
    return (*top, entropy, float(position))


def lookahead_logits(weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """The log-odds [n] that the target accepts, of features [n, F]: one hidden layer on standardised features."""
    x = (features.float() - weights["mean"]) / weights["deviation"]
    x = linear(x, weights["in.weight"], weights["in.bias"]).relu()
    return linear(x, weights["out.weight"], weights["out.bias"])[:, 0]


@final
class AcceptanceHead:
    """Predicts whether the token that a draft's row read is accepted. name: where it came from, for messages."""

    def __init__(self, file: ClassifierHeadFile, name: str, calibrate: bool = True) -> None:
        self.pair, self.threshold = file.pair, file.threshold
        self._weights = dict(file.weights)
        self._width = file.weights["out.weight"].shape[1]
        self._name = name
        self._reject_weight = file.reject_weight if calibrate else 1.0

    @torch.inference_mode()
    def accepted(self, hidden: Tensor) -> float:
        """The probability; of the surest of several rows [n, D]. Raises ValueError on another hidden size."""
        if hidden.shape[-1] != self._width:
            raise ValueError(
                f"the acceptance head {self._name} reads hidden states of {self._width} numbers and the drafter's have "
                f"{hidden.shape[-1]}; train one for this drafter"
            )
        if self._weights["scale"].device != hidden.device:
            self._weights = {name: tensor.to(hidden.device) for name, tensor in self._weights.items()}
        says = acceptance_logits(self._weights, hidden).softmax(-1)[:, 1].max()
        return float(calibrated(says, self._reject_weight))


@final
class LookaheadClassifier:
    """Predicts whether the next drafted token is accepted. top: how many probabilities it reads."""

    def __init__(self, file: ClassifierHeadFile) -> None:
        self.pair, self.threshold = file.pair, file.threshold
        self.top = file.weights["mean"].shape[0] - 2
        self._weights = file.weights

    @torch.inference_mode()
    def accepted(self, top: Sequence[float], entropy: float, position: int) -> float:
        features = torch.tensor([lookahead_features(top, entropy, position)])
        return float(lookahead_logits(self._weights, features).sigmoid())


def _acceptance_shape(weights: Mapping[str, Tensor]) -> None:
    """Raises ValueError, or KeyError, on weights that don't fit each other."""
    width = weights["out.weight"].shape[1]
    expected = {"scale": (1,), "out.weight": (2, width), "out.bias": (2,)}
    for block in range(depth_of(weights)):
        expected |= {f"blocks.{block}.weight": (width, width), f"blocks.{block}.bias": (width,)}
    _compare(weights, expected)


def _lookahead_shape(weights: Mapping[str, Tensor]) -> None:
    features, width = weights["mean"].shape[0], weights["in.bias"].shape[0]
    expected = {"mean": (features,), "deviation": (features,), "in.weight": (width, features), "in.bias": (width,)}
    _compare(weights, {**expected, "out.weight": (1, width), "out.bias": (1,)})


def _compare(weights: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if found != expected:
        raise ValueError(f"its weights have the shapes {found}, and {dict(expected)} are needed")

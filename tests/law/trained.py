"""Policies with heads whose weights are set by hand, for the exact gate."""

from __future__ import annotations

import torch

from forerun.core.identity import Identity, Pair
from forerun.core.policy import LengthPolicy
from forerun.models.files.classifier_heads import AcceptanceHead, ClassifierHeadFile, LookaheadClassifier
from forerun.policies.acceptance_head import PredictedAcceptance
from forerun.policies.disco import Disco

from .exact import PROMPT

PAIR = Pair(Identity("table", 1, PROMPT + 1, PROMPT, "0" * 16), "table")
# how likely a token is accepted, says the head, by which it is: TableSequence's states tell the token that was read
ACCEPTED = (0.2, 0.9, 0.6, 0.8, 0.3)
HEAD = AcceptanceHead(
    ClassifierHeadFile(
        PAIR,
        {
            "scale": torch.ones(1),
            "out.weight": torch.stack(
                [torch.zeros(PROMPT + 1), torch.logit(torch.tensor([*ACCEPTED, *[0.5] * (PROMPT + 1 - len(ACCEPTED))]))]
            ),
            "out.bias": torch.zeros(2),
        },
        0.5,
    ),
    "by hand",
)
CLASSIFIER = LookaheadClassifier(
    ClassifierHeadFile(
        PAIR,
        {
            "mean": torch.zeros(4),
            "deviation": torch.ones(4),
            # surer with the largest probability, less so with the entropy and the place in the draft
            "in.weight": torch.tensor([[20.0, 0.0, -1.0, -0.5]]),
            "in.bias": torch.tensor([100.0]),
            "out.weight": torch.ones(1, 1),
            "out.bias": torch.tensor([-107.4]),
        },
        0.5,
    )
)


def acceptance_head() -> LengthPolicy:
    return PredictedAcceptance(HEAD, 0.45, 1, 3)


def disco() -> LengthPolicy:
    return Disco(CLASSIFIER, 0.5, 3)

"""The proposer inside vLLM itself: FORERUN_VLLM_PYTHON=PATH names a Python that has it; it runs there on a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import forerun

from .real_vllm import EVERYTHING, HEAT, VOCABULARY

PYTHON = os.environ.get("FORERUN_VLLM_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="FORERUN_VLLM_PYTHON names no Python that has vLLM")


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 128,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    made = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, eos_token_id=2, bos_token_id=1, **shape))
    # the token after the last one is likely, so that some drafts are accepted and some aren't
    made.lm_head.weight.data = 1.8 * made.model.embed_tokens.weight.data.roll(1, 0)
    return made.eval()


@pytest.fixture(scope="module")
def told(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    source = str(Path(forerun.__file__).parents[1])
    subprocess.run(
        [PYTHON, str(Path(__file__).with_name("real_vllm.py")), str(folder), str(folder / "told.json")],
        env={**os.environ, "PYTHONPATH": source},
        check=True,
    )
    found: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return found


def test_greedy_answers_equal_those_without_drafts(told: dict[str, Any]) -> None:
    assert told["with_drafts"] == told["plain"]
    assert told["greedy"]["accepted"] > 20


def test_draws_follow_the_law_of_the_model(told: dict[str, Any], model: LlamaForCausalLM) -> None:
    """The second token, for which lookup has a draft: its law by chi-square, and how often it is the drafted one."""
    from scipy.stats import chisquare

    with torch.no_grad():
        first = (model(torch.tensor([EVERYTHING])).logits[0, -1] / HEAT).softmax(-1)
        texts = torch.tensor([[*EVERYTHING, token] for token in range(VOCABULARY)])
        after = (model(texts).logits[:, -1] / HEAT).softmax(-1)
    law = (first @ after).double()
    seen = Counter(draw[1] for draw in told["draws"])
    count = len(told["draws"])
    follows = dict(pairwise(EVERYTHING))
    drafted = sum(draw[1] == follows.get(draw[0]) for draw in told["draws"]) / count
    right = sum(float(first[token] * after[token, wanted]) for token, wanted in follows.items())
    likely = [token for token in range(VOCABULARY) if law[token] * count >= 5]
    observed = [seen[token] for token in likely] + [count - sum(seen[token] for token in likely)]
    rest = 1 - float(law[likely].sum())
    expected = [float(law[token]) * count for token in likely] + [rest * count]

    assert told["draws_drafted"] > count
    assert told["draws_accepted"] > count / 10
    assert abs(drafted - right) < 4 * (right * (1 - right) / count) ** 0.5
    assert len(likely) > 8
    assert chisquare(observed, [value * count / sum(expected) for value in expected]).pvalue > 1e-3


def test_200_requests_with_aborts_and_preemption_end_and_leave_nothing(told: dict[str, Any]) -> None:
    assert told["crowd"]["aborted"] > 3
    assert told["crowd"]["preempted"] > 3
    assert told["crowd"]["finished"] + told["crowd"]["aborted"] == 200
    assert told["in_flight"] <= 16
    assert told["most_in_flight"] <= 5 * 16
    assert not told["failed"]

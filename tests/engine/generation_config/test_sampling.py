"""The law of a request under a checkpoint's generation config, against transformers' own processors."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TopKLogitsWarper,
)

from forerun.core.law import Categorical
from forerun.core.sampling import law, processed
from forerun.core.values import Sampling
from forerun.engine.generation_config.defaults import read_defaults
from forerun.engine.generation_config.processors import ProcessorContext
from forerun.engine.generation_config.sampling import with_checkpoint
from forerun.engine.options import options_from
from forerun.testing import VOCABULARY, tiny_model

MODEL = tiny_model("gpt2")
IDS = [5, 9, 7, 9, 5, 9]
CHOICES: dict[str, list[Any]] = {
    "temperature": [0.5, 1.0, 1.7],
    "top_k": [0, 3, 10, 200],
    "top_p": [0.5, 0.9, 1.0],
    "min_p": [0.0, 0.1],
    "typical_p": [0.5, 0.9, 1.0],
    "epsilon_cutoff": [0.0, 0.01],
    "eta_cutoff": [0.0, 0.05],
    "top_h": [0.3, 0.7],
    "repetition_penalty": [1.3],
    "no_repeat_ngram_size": [2],
    "sequence_bias": [[[[9], 2.0], [[9, 7], -3.0]]],
    "suppress_tokens": [[1, 2, 3]],
    "renormalize_logits": [True],
}


def sampling_of(config: GenerationConfig, **given: Any) -> tuple[Sampling, list[str]]:
    defaults = read_defaults(config)
    options = options_from(given, defaults.options, defaults.options_if_drawn)
    place = ProcessorContext(IDS, 20, (2,), VOCABULARY, torch.device("cpu"))
    return with_checkpoint(options.sampling(options.classified()), defaults, place, given)


def scores_of_transformers(config: GenerationConfig, row: torch.Tensor, *processors: Any) -> torch.Tensor:
    asked = GenerationConfig(**config.to_dict())
    asked._eos_token_tensor = torch.tensor([2])
    made = MODEL._get_logits_processor(
        asked, len(IDS), torch.tensor([IDS]), logits_processor=LogitsProcessorList(processors), device="cpu"
    )
    scores: torch.Tensor = made(torch.tensor([IDS]), row[None].clone())
    return scores[0]


@pytest.mark.parametrize("seed", range(40))
def test_a_drawn_requests_law_is_that_of_transformers(seed: int) -> None:
    chance = random.Random(seed)
    fields = {name: chance.choice(values) for name, values in CHOICES.items() if chance.random() < 0.5}
    config = GenerationConfig(**{"top_k": 0, **fields}, do_sample=True)
    row = 3 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))

    found = law(row, sampling_of(config, do_sample=True)[0], IDS, len(IDS))

    assert isinstance(found, Categorical)
    torch.testing.assert_close(found.probs, scores_of_transformers(config, row).softmax(-1), check_dtype=False)


def test_a_greedy_request_is_not_filtered() -> None:
    config = GenerationConfig(top_h=0.3, typical_p=0.5, top_k=2, suppress_tokens=[1])
    sampling, fields = sampling_of(config)

    assert (sampling.warpers, sampling.top_k, fields) == ((), 0, ["suppress_tokens"])


PENALISED: dict[str, Any] = {
    "sequence_bias": [[[9], 2.0]],
    "repetition_penalty": 1.3,
    "no_repeat_ngram_size": 2,
    "encoder_no_repeat_ngram_size": 3,
    "suppress_tokens": [1, 2, 3],
}


@pytest.mark.parametrize(
    "brought",
    [
        [RepetitionPenaltyLogitsProcessor(3.0)],
        [NoRepeatNGramLogitsProcessor(1)],
        [SuppressTokensLogitsProcessor([9, 40]), SuppressTokensLogitsProcessor([41])],
        [TopKLogitsWarper(20), RepetitionPenaltyLogitsProcessor(0.5), NoRepeatNGramLogitsProcessor(3)],
    ],
)
def test_what_the_request_brings_stands_where_transformers_puts_it(brought: list[Any]) -> None:
    config = GenerationConfig(**PENALISED)
    row = 3 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(1))
    sampling, fields = sampling_of(config, processors=brought)

    assert torch.equal(processed(row, sampling, IDS, len(IDS)), scores_of_transformers(config, row, *brought))
    assert ("suppress_tokens" in fields) == all(type(one) is not SuppressTokensLogitsProcessor for one in brought)


def test_beside_a_penalty_of_the_request_itself_its_processors_act_as_they_always_did() -> None:
    brought = RepetitionPenaltyLogitsProcessor(2.0)
    sampling, _ = sampling_of(GenerationConfig(**PENALISED), repetition_penalty=1.5, processors=[brought])

    assert sampling.repetition_penalty == 1.5
    assert sampling.processors[-1] is brought


def test_without_a_generation_config_nothing_is_added() -> None:
    sampling, fields = sampling_of(GenerationConfig(), top_p=0.5, temperature=0.7)

    assert (sampling, fields) == (Sampling(temperature=0.7, top_p=0.5), [])
    assert not sampling.uses_history

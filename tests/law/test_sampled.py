"""Real tensors, real models: seeded text, and the law of many texts."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

import forerun
from forerun.core.chance import Seeded
from forerun.core.decode import decode
from forerun.core.drafter import Drafter
from forerun.core.drive import Batch
from forerun.core.law import Categorical
from forerun.core.values import Context, Round, Sampling
from forerun.drafters.self_draft import SelfDraft
from forerun.drafters.tree import Shape, Tree
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.policies.fixed import Fixed
from forerun.testing import tiny_model

from . import mutants

PROMPT = [1, 2, 1]
WARM: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.9},
    {"temperature": 1.3, "repetition_penalty": 1.2, "presence_penalty": 0.5, "no_repeat_ngram": 3},
]


@pytest.mark.parametrize("policy", ["fixed", "heuristic", "bounded"])
@pytest.mark.parametrize("sampling", WARM)
def test_seeded_text_with_chosen_drafts_is_seeded_plain_text(sampling: dict[str, Any], policy: str) -> None:
    model = tiny_model("llama", vocab_size=7)
    plain, speculative = forerun.load(model), forerun.load(model, drafter="lookup", policy=policy)
    for seed in range(4):
        prompt = [1, 2, 3, 1, 2, 3, 1, 2]
        options = {"seed": seed, "max_new_tokens": 40, **sampling}
        answer = speculative.generate(prompt, **options)
        assert answer.ids == plain.generate(prompt, **options).ids
        assert answer.stats.rounds < len(answer.ids)


def branched(inner: Drafter) -> Drafter:
    """A tree of two levels, with siblings drawn without replacement."""
    return Tree(inner, Shape(n=2, prices=(0.0,) * 6, drawn=True))


def written(
    model: Any, texts: int, length: int, around: Callable[[Drafter], Drafter] = lambda own: own
) -> torch.Tensor:
    """The first tokens of so many texts, drafts drawn after half of the layers and verified, 250 texts a batch."""
    runner, kept = HFRunner(model), []
    for first in range(0, texts, 250):
        batch: Batch[int, Round] = Batch()
        contexts = [Context([*PROMPT], Seeded(seed), Sampling(1.0), length + 2) for seed in range(first, first + 250)]
        for number, context in enumerate(contexts):
            target = Sequence(runner, capacity=16)
            drafter = around(SelfDraft(target, LayerPlan.early_exit(1, runner.num_layers)))
            batch.add(number, decode(target, drafter, Fixed(2), context))
        for event in batch.run():
            if event.error is not None:
                raise event.error
        kept += [context.ids[len(PROMPT) : len(PROMPT) + length] for context in contexts]
    return torch.tensor(kept)


def joint(model: Any, length: int) -> torch.Tensor:
    """The law of the first tokens [V, V, ...], of the model's own forwards."""
    law = torch.ones((), dtype=torch.float64)
    for done in range(length):
        texts = torch.tensor([[*PROMPT, *before] for before in product(range(model.config.vocab_size), repeat=done)])
        with torch.no_grad():
            rows = model(input_ids=texts).logits[:, -1].double().softmax(-1)
        law = law[..., None] * rows.reshape(*law.shape, -1)
    return law


def p_value(tokens: torch.Tensor, law: torch.Tensor) -> float:
    """Pearson's chi-square; cells that expect fewer than 5 are pooled."""
    cells = torch.zeros(len(tokens), dtype=torch.long)
    for column in tokens.T:
        cells = cells * law.shape[0] + column
    counts = torch.bincount(cells, minlength=law.numel()).double()
    expected = law.flatten() * len(tokens)
    small = expected < 5
    counts = torch.cat([counts[~small], counts[small].sum()[None]])
    expected = torch.cat([expected[~small], expected[small].sum()[None]])
    counts, expected = counts[expected > 0], expected[expected > 0]
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2).double(), statistic / 2))


@pytest.mark.parametrize("around", [lambda own: own, branched], ids=["chain", "tree"])
def test_many_texts_of_a_real_model_follow_its_law(around: Callable[[Drafter], Drafter]) -> None:
    """Chi-square of the first three tokens, 27 cells, 3,000 texts, level 1e-4."""
    model = tiny_model("llama", seed=0, vocab_size=3, bos_token_id=None)
    law = joint(model, 3)
    assert float(law.sum()) == pytest.approx(1)
    assert p_value(written(model, 3000, 3, around), law) > 1e-4


def test_the_chi_square_finds_siblings_that_are_pruned_for_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", seed=0, vocab_size=3, bos_token_id=None)
    mutants.unlikely_drawn_siblings_pruned(monkeypatch)
    assert p_value(written(model, 1000, 3, branched), joint(model, 3)) < 1e-4


def test_the_chi_square_finds_a_residual_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", seed=0, vocab_size=3, bos_token_id=None)
    monkeypatch.setattr(Categorical, "minus", lambda self, other: self)
    assert p_value(written(model, 1000, 3), joint(model, 3)) < 1e-4

import torch

from forerun.core.chance import Seeded
from forerun.core.forward import Rows
from forerun.core.law import Categorical
from forerun.core.values import ROOT, Context, Sampling
from forerun.drafters.chain import next_step

LOGITS = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
ROWS = Rows(LOGITS, torch.ones(1, 5))


def context(sampling: Sampling, seed: int = 0) -> Context:
    return Context([1, 2], Seeded(seed), sampling)


def test_the_best_token_is_chosen_at_temperature_zero() -> None:
    step = next_step(ROWS, context(Sampling()), [])
    assert (step.tokens, step.parents, step.laws) == ((1,), (ROOT,), (None,))


def test_a_token_is_drawn_from_the_law_that_comes_with_it() -> None:
    sampling = Sampling(temperature=2.0, top_k=3)
    step = next_step(ROWS, context(sampling), [5, 6])
    law = step.laws[0]
    assert isinstance(law, Categorical)
    torch.testing.assert_close(law.probs, torch.tensor([-torch.inf, 1.5, 0.5, 1.0]).softmax(-1))
    assert step.tokens == (Seeded(0).propose(law, 4, 2),)
    assert step.parents == (1,)


def test_a_penalty_counts_what_this_round_has_drafted() -> None:
    sampling = Sampling(presence_penalty=2.5)
    assert next_step(ROWS, context(sampling), []).tokens == (1,)
    assert next_step(ROWS, context(sampling), [1]).tokens == (3,)


def test_a_step_carries_the_row_that_it_follows() -> None:
    step = next_step(ROWS, context(Sampling()), [])
    assert step.logits is LOGITS
    assert step.hidden is ROWS.hidden


def test_a_position_drafted_again_draws_another_number() -> None:
    flat = Rows(torch.zeros(1, 1000), torch.ones(1, 5))
    early = Context([1, 2], Seeded(0), Sampling(1.0))
    late = Context([1, 2, 3], Seeded(0), Sampling(1.0))
    assert next_step(flat, early, [7]).tokens != next_step(flat, late, []).tokens

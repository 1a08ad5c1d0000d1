"""sampling against transformers: the very processors and warpers of generate, in the order in which it applies them."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

from forerun.core.law import Categorical, Filtered, Law, PointMass
from forerun.core.sampling import FEW, greedy_tokens, law, masked, processed, ranked, warped
from forerun.core.values import Sampling
from forerun.errors import InvalidLogits
from forerun.testing import tiny_model

VOCABULARY = 97
PROMPT = [5, 6, 7, 5, 6, 8, 5, 6]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


def transformers_scores(model: Any, logits: Tensor, ids: list[int], **options: Any) -> Tensor:
    """What generate(do_sample=True) makes of a row."""
    config = GenerationConfig(do_sample=True, **{"top_k": 0, **options})
    model._prepare_special_tokens(config, device="cpu")
    processors = model._get_logits_processor(config, input_ids_seq_length=len(ids))
    return processors(torch.tensor([ids]), logits[None].clone())[0]


def rows(ties: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(8, VOCABULARY, generator=generator) * 3
    return list((logits * 2).round() / 2 if ties else logits)


OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"temperature": 0.7}, {"temperature": 0.7}),
    ({"temperature": 1.9}, {"temperature": 1.9}),
    ({"top_k": 1}, {"top_k": 1}),
    ({"top_k": 7}, {"top_k": 7}),
    ({"top_k": 500}, {"top_k": 500}),
    ({"top_p": 0.9}, {"top_p": 0.9}),
    ({"top_p": 0.05}, {"top_p": 0.05}),
    ({"min_p": 0.1}, {"min_p": 0.1}),
    ({"min_p": 1.0}, {"min_p": 1.0}),
    ({"repetition_penalty": 1.7}, {"repetition_penalty": 1.7}),
    ({"repetition_penalty": 0.6}, {"repetition_penalty": 0.6}),
    ({"no_repeat_ngram": 1}, {"no_repeat_ngram_size": 1}),
    ({"no_repeat_ngram": 3}, {"no_repeat_ngram_size": 3}),
    ({"no_repeat_ngram": 9}, {"no_repeat_ngram_size": 9}),
    (
        {"repetition_penalty": 1.3, "no_repeat_ngram": 3, "temperature": 0.8, "top_k": 20, "top_p": 0.8, "min_p": 0.05},
        {
            "repetition_penalty": 1.3,
            "no_repeat_ngram_size": 3,
            "temperature": 0.8,
            "top_k": 20,
            "top_p": 0.8,
            "min_p": 0.05,
        },
    ),
]


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
@pytest.mark.parametrize(("ours", "theirs"), OPTIONS, ids=[" ".join(ours) or "plain" for ours, _ in OPTIONS])
def test_the_law_is_that_of_transformers(model: Any, ours: Any, theirs: Any, ties: bool) -> None:
    sampling = Sampling(**{"temperature": 1.0, **ours})
    for logits in rows(ties):
        actual = law(logits, sampling, PROMPT, len(PROMPT))
        expected = transformers_scores(model, logits, PROMPT, **theirs).softmax(-1)
        assert isinstance(actual, Categorical)
        assert torch.equal(actual.probs > 0, expected > 0)
        torch.testing.assert_close(actual.probs, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
def test_the_greedy_choice_is_that_of_transformers(model: Any, ties: bool) -> None:
    for logits in rows(ties):
        chosen = law(logits, Sampling(repetition_penalty=1.5, no_repeat_ngram=3), PROMPT)
        options = {"repetition_penalty": 1.5, "no_repeat_ngram_size": 3}
        expected = transformers_scores(model, logits, PROMPT, **options).argmax()
        assert isinstance(chosen, PointMass)
        assert chosen.token == int(expected)


def test_greedy_tokens_equal_the_law_at_temperature_zero() -> None:
    logits = torch.stack(rows(ties=True))
    assert greedy_tokens(logits) == [law(row, Sampling()).quantile(0.5) for row in logits]


def test_of_equal_logits_the_lowest_id_is_the_greedy_choice() -> None:
    row = torch.tensor([0.0, 2.0, 1.0, 2.0])
    assert greedy_tokens(row[None]) == [1]
    assert law(row, Sampling()).quantile(0.0) == 1


def test_frequency_and_presence_penalties_count_the_emitted_tokens_only() -> None:
    sampling = Sampling(frequency_penalty=0.5, presence_penalty=0.25)
    scores = processed(torch.zeros(5), sampling, [1, 1, 2, 3, 2, 2], prompt_length=3)
    assert scores.tolist() == [0, 0, -1.25, -0.75, 0]


def test_the_repetition_penalty_counts_the_prompt_too() -> None:
    scores = processed(torch.tensor([2.0, -2.0, 2.0]), Sampling(repetition_penalty=2.0), [0, 1], prompt_length=2)
    assert scores.tolist() == [1, -4, 2]


def test_penalties_leave_the_models_logits_as_they_are() -> None:
    logits = torch.ones(5)
    sampling = Sampling(repetition_penalty=2.0, frequency_penalty=1.0, no_repeat_ngram=1)
    processed(logits, sampling, [0, 1, 2], prompt_length=1)
    assert torch.equal(logits, torch.ones(5))


def test_tokens_that_a_smaller_vocabulary_lacks_are_no_obstacle() -> None:
    sampling = Sampling(repetition_penalty=2.0, frequency_penalty=1.0, presence_penalty=1.0, no_repeat_ngram=2)
    assert processed(torch.ones(4), sampling, [50, 1, 70, 80], prompt_length=1).tolist() == [1, -1.5, 1, 1]
    assert processed(torch.ones(4), sampling, [50, 1, 70, 50], prompt_length=1).tolist() == [1, -torch.inf, 1, 1]
    assert processed(torch.ones(4), sampling, [1, 50, 1], prompt_length=3).tolist() == [1, 0.5, 1, 1]


def test_processors_see_the_full_prefix_and_act_between_penalties_and_temperature() -> None:
    seen: list[Any] = []

    def forbid(ids: Tensor, scores: Tensor) -> Tensor:
        seen.append((ids.tolist(), scores.tolist()))
        return scores.index_fill(1, torch.tensor([0]), -torch.inf)

    sampling = Sampling(temperature=0.5, repetition_penalty=2.0, processors=(forbid,))
    made = law(torch.tensor([4.0, 0.0, 1.0]), sampling, [0, 2])
    assert seen == [([[0, 2]], [[2, 0, 0.5]])]
    assert isinstance(made, Categorical)
    torch.testing.assert_close(made.probs, torch.tensor([-torch.inf, 0.0, 1.0]).softmax(-1))


def test_processors_act_one_after_the_other() -> None:
    sampling = Sampling(processors=(lambda ids, scores: scores + 1, lambda ids, scores: scores * 2))
    assert processed(torch.ones(2), sampling, [0], 1).tolist() == [4, 4]


def test_the_last_token_survives_every_filter() -> None:
    sampling = Sampling(temperature=1.0, top_k=1, top_p=1e-9, min_p=1.0)
    assert warped(torch.tensor([1.0, 3.0, 2.0]), sampling).isfinite().tolist() == [False, True, False]


def test_half_precision_rows_give_laws_in_float32() -> None:
    made = law(torch.randn(50).bfloat16(), Sampling(temperature=1.0, top_p=0.9))
    assert isinstance(made, Categorical)
    assert made.probs.dtype == torch.float32


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_is_refused(temperature: float) -> None:
    row = torch.tensor([0.0, torch.nan, 1.0])
    with pytest.raises(InvalidLogits, match="contain NaN"):
        law(row, Sampling(temperature=temperature))
    with pytest.raises(InvalidLogits, match="contain NaN"):
        greedy_tokens(torch.stack([torch.zeros(3), row]))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_allows_no_token_is_refused(temperature: float) -> None:
    with pytest.raises(InvalidLogits, match="no token is allowed"):
        law(torch.full((3,), -torch.inf), Sampling(temperature=temperature))
    with pytest.raises(InvalidLogits, match="no token is allowed"):
        law(torch.zeros(3), Sampling(temperature=temperature, no_repeat_ngram=1), [0, 1, 2])


def test_an_infinite_logit_has_a_greedy_choice_and_no_law() -> None:
    row = torch.tensor([0.0, torch.inf, 1.0])
    assert law(row, Sampling()).quantile(0.5) == 1
    with pytest.raises(InvalidLogits, match=r"\+inf"):
        law(row, Sampling(temperature=1.0))


def test_the_smallest_temperature_is_still_a_law() -> None:
    made = law(torch.tensor([1e4, -1e4, 9999.0]), Sampling(temperature=1e-6, top_p=0.9, min_p=0.1))
    assert isinstance(made, Categorical)
    assert made.probs.tolist() == [1, 0, 0]


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("spread", [0.3, 3.0, 8.0])
def test_the_edge_of_top_p_is_the_same_with_and_without_a_full_sort(top_p: float, spread: float) -> None:
    for seed in range(20):
        scores = torch.randn(3000, generator=torch.Generator().manual_seed(seed)) * spread
        sampling = Sampling(temperature=1.0, top_p=top_p)

        kept = torch.isfinite(warped(scores, sampling))

        values, order = scores.sort()
        out = values.softmax(-1).cumsum(-1) <= 1 - top_p
        out[-1] = False
        assert torch.equal(kept, ~torch.zeros_like(out).scatter_(0, order, out))


def test_equal_scores_at_the_edge_of_top_p_are_kept_as_a_full_sort_keeps_them() -> None:
    scores = torch.cat([torch.full((4,), 5.0), torch.zeros(2000)])
    few = torch.isfinite(warped(scores, Sampling(temperature=1.0, top_p=0.1)))

    assert 0 < int(few[:4].sum()) < 4
    assert not few[4:].any()


@pytest.mark.parametrize(
    "options", [{"temperature": 1.3}, {"temperature": 0.7, "top_k": 7}, {"temperature": 1.0, "top_p": 0.5}]
)
def test_ranked_tokens_are_the_most_probable_ones_of_the_law(options: dict[str, Any]) -> None:
    sampling = Sampling(**options, presence_penalty=0.5)
    for row in rows(ties=False):
        own, ranking = ranked(row, sampling, 10, PROMPT, 2)
        expected = law(row, sampling, PROMPT, 2)
        assert isinstance(own, Categorical)
        assert isinstance(expected, Categorical)
        assert torch.equal(own.probs, expected.probs)
        assert [p for _, p in ranking] == sorted((p for p in expected.probs.tolist() if p), reverse=True)[:10]
        assert [p for token, p in ranking] == [expected.probability(token) for token, _ in ranking]


def test_at_temperature_zero_they_are_ranked_by_the_softmax_of_the_processed_row() -> None:
    sampling = Sampling(repetition_penalty=1.5)
    for row in rows(ties=False):
        own, ranking = ranked(row, sampling, 3, PROMPT)
        best = processed(row, sampling, PROMPT, 0).softmax(-1).topk(3)
        assert isinstance(own, PointMass)
        assert own.token == ranking[0][0]
        assert ranking == list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def test_tokens_of_probability_zero_are_not_ranked() -> None:
    row = torch.tensor([1.0, -torch.inf, 0.0])
    assert [token for token, _ in ranked(row, Sampling(), 9)[1]] == [0, 2]
    assert [token for token, _ in ranked(row, Sampling(temperature=1.0, top_k=1), 9)[1]] == [0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_no_law_is_not_ranked(temperature: float) -> None:
    for row in (torch.full((3,), torch.nan), torch.full((3,), -torch.inf)):
        with pytest.raises(InvalidLogits):
            ranked(row, Sampling(temperature), 2)


def dense(own: Law, size: int) -> Tensor:
    probs = torch.zeros(size)
    if isinstance(own, Filtered):
        assert all(p > 0 for p in own.probs)
        probs[list(own.tokens)] = torch.tensor(own.probs, dtype=torch.float32)
        return probs
    assert isinstance(own, Categorical)
    return own.probs


def some_allowed(share: float, size: int = VOCABULARY) -> Tensor:
    allowed = torch.rand(size, generator=torch.Generator().manual_seed(5)) < share
    allowed[:2] = torch.tensor([True, False])
    return allowed


@pytest.mark.parametrize("few", [True, False], ids=["few", "many"])
@pytest.mark.parametrize(("ours", "theirs"), OPTIONS, ids=[" ".join(ours) or "plain" for ours, _ in OPTIONS])
def test_the_masked_law_is_that_of_transformers_on_a_masked_row(
    model: Any, ours: Any, theirs: Any, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its penalties leave -inf as it is, so that a mask before them is one after them."""
    monkeypatch.setattr("forerun.core.sampling.FEW", FEW if few else 0)
    sampling = Sampling(**{"temperature": 1.0, **ours})
    allowed = some_allowed(0.4)
    for logits in rows(ties=False):
        expected = transformers_scores(model, masked(logits, allowed), PROMPT, **theirs).softmax(-1)
        if not bool(expected.isfinite().all()):
            continue
        own = law(logits, sampling, PROMPT, len(PROMPT), allowed=allowed)
        assert isinstance(own, Filtered if few else Categorical)
        assert torch.equal(dense(own, VOCABULARY) > 0, expected > 0)
        torch.testing.assert_close(dense(own, VOCABULARY), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("limit", [FEW, 0])
def test_the_best_allowed_token_is_the_first_of_the_largest(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.core.sampling.FEW", limit)
    allowed = some_allowed(0.2)
    for logits in rows(ties=True):
        own = law(logits, Sampling(), allowed=allowed)
        assert isinstance(own, PointMass)
        assert own.token == int(masked(logits, allowed).argmax())
        assert bool(allowed[own.token])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_single_allowed_token_is_certain_and_none_is_an_error(temperature: float) -> None:
    row, allowed = torch.tensor([3.0, 2.0, -5.0]), torch.tensor([False, False, True])
    assert law(row, Sampling(temperature), allowed=allowed).probability(2) == 1
    with pytest.raises(InvalidLogits, match="after processors and grammar"):
        law(row, Sampling(temperature), allowed=torch.zeros(3, dtype=torch.bool))
    with pytest.raises(InvalidLogits, match="after processors and grammar"):
        law(torch.tensor([3.0, 2.0, -torch.inf]), Sampling(temperature), allowed=allowed)
    with pytest.raises(InvalidLogits, match="NaN"):
        law(torch.tensor([3.0, 2.0, torch.nan]), Sampling(temperature), allowed=allowed)


def test_a_row_of_a_smaller_vocabulary_takes_the_beginning_of_a_mask() -> None:
    row, allowed = torch.tensor([1.0, 4.0, 2.0]), torch.tensor([True, False, True, True, False])
    own = law(row, Sampling(1.0), allowed=allowed)
    assert [own.probability(token) for token in range(4)] == pytest.approx([0.2689, 0, 0.7311, 0], abs=1e-4)
    assert [token for token, _ in ranked(row, Sampling(), 3, allowed=allowed)[1]] == [2, 0]
    with pytest.raises(InvalidLogits):
        law(row, Sampling(1.0), allowed=torch.tensor([False, False, False, True]))


def test_processors_cannot_bring_back_what_is_forbidden() -> None:
    def flat(ids: Tensor, scores: Tensor) -> Tensor:
        return torch.zeros_like(scores)

    own = law(torch.tensor([1.0, 4.0]), Sampling(1.0, processors=(flat,)), allowed=torch.tensor([True, False]))
    assert (own.probability(0), own.probability(1)) == (1, 0)

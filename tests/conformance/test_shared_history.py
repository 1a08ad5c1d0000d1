"""What an engine remembers of earlier answers never changes a text, in any order and any company, only its speed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import forerun
from forerun.engine.answer import Result
from forerun.engine.request import RequestOptions
from forerun.testing import tiny_model

PROMPTS, NEW = 200, 6
Asked = tuple[list[int], RequestOptions]

SHARING: dict[str, dict[str, Any]] = {
    "suffix": {},
    "recycle": {"pairs": 512},
    "cascade": {"of": "suffix,recycle"},
}


def questions() -> list[Asked]:
    """Prompts that share pieces, as those of one user do; greedy and sampled ones, some of which leave nothing behind."""
    chance = Random(0)
    pieces = [[chance.randrange(97) for _ in range(5)] for _ in range(6)]
    asked: list[Asked] = []
    for number in range(PROMPTS):
        options: RequestOptions = {"max_new_tokens": NEW, "remember": number % 5 != 3}
        if number % 2:
            options = {**options, "temperature": 0.7, "do_sample": True, "seed": number}
        asked.append((chance.choice(pieces) + chance.choice(pieces), options))
    return asked


def texts(engine: forerun.Engine, asked: list[Asked], order: list[int], company: int) -> dict[int, Result]:
    """The answers by prompt, asked in this order and so many at once."""
    found = engine.each((asked[number] for number in order), max_batch=company)
    return {order[place]: result for place, result in found}


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama", num_hidden_layers=1), drafter="none")


@pytest.fixture(scope="module")
def asked() -> list[Asked]:
    return questions()


@pytest.fixture(scope="module")
def plain(engine: forerun.Engine, asked: list[Asked]) -> dict[int, tuple[int, ...]]:
    return {number: engine.generate(prompt, **options).ids for number, (prompt, options) in enumerate(asked)}


@pytest.mark.parametrize("drafter", SHARING)
def test_200_prompts_in_any_order_and_company_get_the_texts_of_plain_decoding(
    engine: forerun.Engine, asked: list[Asked], plain: dict[int, tuple[int, ...]], drafter: str
) -> None:
    """One engine answers all of them again and again, so that every later answer could be copied from an earlier one."""
    sharing = engine.using(drafter, "fixed", drafter_options=SHARING[drafter], policy_options={"k": 3})
    rates: list[float] = []
    for turn, company in enumerate((5, 16)):
        order = list(range(PROMPTS))
        Random(turn).shuffle(order)
        found = texts(sharing, asked, order, company)
        assert {number: result.ids for number, result in found.items()} == plain
        rounds = sum(result.stats.rounds for result in found.values())
        rates.append(sum(result.stats.tokens for result in found.values()) / rounds)
    assert rates[1] > rates[0]
    assert rates[1] > 1.3


def test_a_text_is_the_same_whoever_asked_before(engine: forerun.Engine, asked: list[Asked]) -> None:
    """Each of a few prompts after no, a related and an unrelated past."""
    for prompt, options in asked[:6]:
        pasts: list[list[list[int]]] = [[], [prompt, prompt[5:]], [[1] * 9, [2, 3] * 4]]
        found: set[tuple[int, ...]] = set()
        drafted: list[int] = []
        for past in pasts:
            sharing = engine.using("suffix", "fixed", policy_options={"k": 3})
            for earlier in past:
                sharing.generate(earlier, **{**options, "remember": True})
            result = sharing.generate(prompt, **options)
            found.add(result.ids)
            drafted.append(result.stats.accepted)
        assert len(found) == 1
        assert drafted[1] > 0


def test_requests_at_once_share_a_history_and_none_sees_anothers_text(
    engine: forerun.Engine, asked: list[Asked], plain: dict[int, tuple[int, ...]]
) -> None:
    """The same prompt many times in one batch, among others: the copies that come later are drafted from the earlier."""
    sharing = engine.using("suffix", "fixed", policy_options={"k": 3})
    order = [0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6]
    results = [result for _, result in sorted(sharing.each((asked[number] for number in order), max_batch=3))]
    assert [result.ids for result in results] == [plain[number] for number in order]
    copies = [result.stats.accepted for result, number in zip(results, order, strict=True) if number == 0]
    assert copies[-1] > copies[0]

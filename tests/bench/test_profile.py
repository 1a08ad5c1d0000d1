"""Where a round's time goes."""

from __future__ import annotations

import pytest

from forerun.bench.compare import compare
from forerun.bench.comparison import Side
from forerun.bench.profile import Profile, profile_of
from forerun.engine.engine import load
from forerun.engine.prompts.questions import Question
from forerun.testing import tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def profile(**changes: float) -> Profile:
    parts = {"draft_forward": 0.0, "verify_forward": 9.8, "law": 0.05, "verify": 0.05, "cache": 0.05, "python": 0.05}
    return Profile(**{**parts, "tokens_per_round": 2.0, **changes})


def test_the_parts_of_real_rounds_sum_to_the_measured_time() -> None:
    engine = load(tiny_model("llama", vocab_size=len(TOKENIZER)), TOKENIZER, "self", drafter_options={"exit_layer": 2})
    side = compare([engine], [Question(("hello hello",))], {"max_new_tokens": 20}, repeats=1, raw=True)[0].speculative
    found = profile_of(side)
    measured = sum(run.seconds for runs in side.repeats for run in runs) / side.stats.rounds
    assert found.total == pytest.approx(measured, rel=1e-6)
    assert all(seconds >= 0 for _, seconds, _ in found.rows())
    assert found.draft_forward > 0
    assert found.verify_forward > 0


def test_shares_sum_to_one_and_name_every_part() -> None:
    rows = profile().rows()
    assert [name for name, _, _ in rows] == ["draft forward", "verify forward", "law", "verify", "cache", "python"]
    assert sum(share for _, _, share in rows) == pytest.approx(1)


def test_native_time_is_told_beside_the_parts() -> None:
    found = profile(native=9.5)
    assert found.total == profile().total
    assert found.as_dict()["outside"] == pytest.approx(0.5)
    assert "native" not in [name for name, _, _ in found.rows()]


def test_overhead_is_what_is_no_forward() -> None:
    assert profile().overhead == pytest.approx(0.02)
    assert profile().as_dict()["overhead"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python": 2.0}, "most of it python"),
        ({"draft_forward": 20.0}, "a cheaper or a shorter draft"),
        ({"tokens_per_round": 1.1}, "right more often"),
        ({}, "smaller weights"),
    ],
)
def test_the_advice_follows_the_largest_cost(changes: dict[str, float], words: str) -> None:
    assert words in profile(**changes).advice()


def test_nothing_decoded_is_refused() -> None:
    with pytest.raises(ValueError, match="no round to profile"):
        profile_of(Side(((),)))

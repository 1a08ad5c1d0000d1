from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import forerun
from forerun.bench import compare as module
from forerun.bench.compare import compare, count_runs
from forerun.core.values import Verdict
from forerun.engine.prompts.questions import Question
from forerun.testing import tiny_model, tiny_tokenizer

OPTIONS = {"max_new_tokens": 10}
ASKED = [Question(("abcabcabc",)), Question(("one", "two"))]


def test_every_method_is_equal_to_plain_decoding_and_drafts(engine: forerun.Engine) -> None:
    engines = [engine.using("self", drafter_options={"exit_layer": 2}), engine.using("lookup")]
    own, lookup = compare(engines, ASKED, OPTIONS, repeats=2)

    for found in (own, lookup):
        assert found.identical
        assert found.verdict == "equal"
        assert found.match_rate == 1
        assert found.plain.stats.drafted == 0
        assert (found.plain.stats.decoded, found.speculative.stats.decoded) == (2 * 27, 2 * 27)
        assert all(ratio > 0 for ratio in found.ratios)
    assert own.speculative.stats.drafted > lookup.speculative.stats.drafted > 0
    assert own.plain is lookup.plain


def test_the_sides_take_turns_after_a_warm_up(engine: forerun.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []
    lengths: list[int] = []
    run_question = module.run_question

    def spy(engine: forerun.Engine, question: Question, options: dict[str, Any], chat: bool) -> Any:
        asked.append((question.turns[0], options.get("speculate", True)))
        lengths.append(options["max_new_tokens"])
        return run_question(engine, question, options, chat)

    ticks: list[int] = []
    monkeypatch.setattr(module, "run_question", spy)
    compare([engine.using("lookup")], ASKED, OPTIONS, repeats=2, tick=lambda: ticks.append(1))
    once = [("abcabcabc", False), ("abcabcabc", True), ("one", False), ("one", True)]

    assert asked == once[:2] + once + once
    assert lengths == [8, 8] + [10] * 8
    assert len(ticks) == len(asked) == count_runs(1, ASKED, 2)


def test_no_repeat_begins_that_would_end_too_late(engine: forerun.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 10.0, 20.0, 30.0, 40.0])  # a repeat takes ten seconds
    monkeypatch.setattr(module, "perf_counter", lambda: next(now))
    found = compare([engine.using("lookup")], ASKED[:1], OPTIONS, repeats=9, seconds=35)[0]

    assert len(found.ratios) == 3


def test_the_first_repeat_is_always_made(engine: forerun.Engine) -> None:
    assert len(compare([engine.using("lookup")], ASKED[:1], OPTIONS, repeats=9, seconds=0)[0].ratios) == 1


def test_sampled_runs_share_a_seed(engine: forerun.Engine) -> None:
    found = compare([engine.using("lookup")], ASKED, {**OPTIONS, "temperature": 1.0}, repeats=2)[0]

    assert found.identical  # lookup chooses its drafts, so seeded output is equal token for token
    assert found.sampled


def test_a_given_seed_is_kept(engine: forerun.Engine) -> None:
    ids = [
        compare([engine.using("lookup")], ASKED[:1], {**OPTIONS, "temperature": 1.0, "seed": seed}, repeats=1)[0]
        .plain.repeats[0][0]
        .ids
        for seed in (1, 1, 2)
    ]

    assert ids[0] == ids[1] != ids[2]


def test_a_lossy_verifier_is_called_a_bug(engine: forerun.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def gullible(draft: forerun.Draft, *rest: Any) -> Verdict:
        verdict = verify(draft, *rest)
        return Verdict((0,), (draft.tokens[0], verdict.tokens[0])) if len(draft) else verdict

    verify: Callable[..., Verdict] = forerun.decode.__globals__["verify"]
    monkeypatch.setitem(forerun.decode.__globals__, "verify", gullible)
    found = compare([engine.using("self", drafter_options={"exit_layer": 1})], ASKED, OPTIONS, repeats=1)[0]

    assert not found.identical
    assert found.verdict == "bug"
    assert found.difference is not None
    assert found.difference.margin > 0
    assert 0 < found.match_rate < 1


def test_raw_asks_without_the_template(engine: forerun.Engine) -> None:
    found = compare([engine.using("lookup")], ASKED[:1], OPTIONS, repeats=1, raw=True)[0]

    assert found.plain.repeats[0][0].answers[0].prompt_tokens == len("abcabcabc")
    with pytest.raises(forerun.UnsupportedOption, match="need a chat template"):
        compare([engine.using("lookup")], ASKED, OPTIONS, repeats=1, raw=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"questions": []}, "at least one engine and one question"),
        ({"engines": []}, "at least one engine and one question"),
        ({"options": {"max_new_tokens": 1}}, "max_new_tokens must be at least 2"),
    ],
)
def test_what_can_not_be_measured_is_refused(engine: forerun.Engine, changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"engines": [engine], "questions": ASKED, "options": OPTIONS, **changes}

    with pytest.raises(ValueError, match=message):
        compare(**given)


def test_answers_that_end_at_once_can_not_be_timed(engine: forerun.Engine) -> None:
    first = engine.generate([{"role": "user", "content": "abcabcabc"}], max_new_tokens=1)
    ending = forerun.load(*_ending_with(first.ids[0]))

    with pytest.raises(ValueError, match="nothing to time"):
        compare([ending], ASKED[:1], OPTIONS, repeats=1)


def _ending_with(token: int) -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer()
    changes = {"vocab_size": len(tokenizer), "max_position_embeddings": 1024, "eos_token_id": token}
    return tiny_model("llama", **changes), tokenizer

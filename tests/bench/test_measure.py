from __future__ import annotations

import pytest

import forerun
from forerun.bench.measure import run_question
from forerun.engine.prompts.questions import Question

OPTIONS = {"max_new_tokens": 8}


def test_every_turn_is_answered_after_the_ones_before(engine: forerun.Engine) -> None:
    run = run_question(engine, Question(("one", "two")), OPTIONS, chat=True)
    first = engine.generate([{"role": "user", "content": "one"}], **OPTIONS)
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": first.text}]
    second = engine.generate([*said, {"role": "user", "content": "two"}], **OPTIONS)

    assert run.ids == (first.ids, second.ids)


def test_the_first_token_of_each_turn_does_not_count(engine: forerun.Engine) -> None:
    run = run_question(engine, Question(("one", "two")), OPTIONS, chat=True)

    assert run.decoded == sum(len(ids) - 1 for ids in run.ids) == 14


def test_nothing_is_kept_from_the_run_before(engine: forerun.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    execute = type(engine.runner).execute

    def counting(self: object, requests: list[forerun.models.packed.request.Request]) -> object:
        rows.extend(len(request.tokens) for request in requests)
        return execute(self, requests)

    monkeypatch.setattr(type(engine.runner), "execute", counting)
    seen: list[list[int]] = []
    for _ in range(2):
        rows.clear()
        run_question(engine, Question(("the same text",)), OPTIONS, chat=False)
        seen.append(list(rows))

    assert seen[0] == seen[1]
    assert seen[0][0] == len("the same text")


def test_no_answer_is_copied_when_a_question_is_asked_again(engine: forerun.Engine) -> None:
    copying = engine.using("suffix", "fixed")
    first, again = (run_question(copying, Question(("the same text",)), OPTIONS, chat=False) for _ in range(2))

    assert [answer.stats.drafted for answer in again.answers] == [answer.stats.drafted for answer in first.answers]
    copying.generate("the same text", **OPTIONS)
    remembered = copying.generate("the same text", **OPTIONS)
    assert remembered.stats.drafted > sum(answer.stats.drafted for answer in again.answers)

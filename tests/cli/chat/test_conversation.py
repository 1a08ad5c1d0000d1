"""A conversation keeps what was said, and counts what answers took."""

from __future__ import annotations

from typing import Any

import pytest

import forerun
from forerun.cli.chat.conversation import MOST_TOKENS, Conversation
from forerun.engine.answer import Piece
from forerun.engine.request import RequestOptions

SHORT: RequestOptions = {"max_new_tokens": 8}


@pytest.fixture(scope="module")
def engine(tiny: str) -> forerun.Engine:
    return forerun.load(tiny, drafter="self", drafter_options={"exit_layer": 2})


def never() -> bool:
    return False


def ignored(piece: Piece) -> None:
    pass


def test_pieces_are_shown_as_they_come_and_join_to_the_result(engine: forerun.Engine) -> None:
    shown: list[Piece] = []
    result, seconds = Conversation(engine, SHORT).ask("hello", shown.append, never)

    assert result is not None
    assert "".join(piece.text for piece in shown) == result.text
    assert seconds > 0


def test_a_turn_computes_nothing_anew_of_the_turns_before(
    engine: forerun.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    execute = engine.runner.execute

    def counted(requests: list[Any]) -> Any:
        rows.extend(request.part.n for request in requests)
        return execute(requests)

    monkeypatch.setattr(engine.runner, "execute", counted)
    talk = Conversation(engine, SHORT)
    first, _ = talk.ask("hello " * 30, ignored, never)
    rows.clear()
    second, _ = talk.ask("a", ignored, never)

    assert first is not None
    assert second is not None
    assert second.prompt_tokens > first.prompt_tokens > 180
    assert sum(rows) < 60


def test_totals_keep_answers_with_drafts_apart_from_plain_ones(engine: forerun.Engine) -> None:
    talk = Conversation(engine, SHORT)
    talk.ask("a", ignored, never)
    talk.speculate = False
    talk.ask("b", ignored, never)
    talk.ask("c", ignored, never)

    assert (talk.totals[True].answers, talk.totals[False].answers) == (1, 2)
    assert talk.totals[True].stats.drafted > 0
    assert talk.totals[False].stats.drafted == 0
    assert talk.totals[False].stats.tokens == 16
    assert talk.turns == 3


def test_a_stopped_answer_stays_said_and_is_not_counted(engine: forerun.Engine) -> None:
    talk = Conversation(engine, SHORT)
    shown: list[Piece] = []
    result, _ = talk.ask("a", shown.append, lambda: len(shown) == 2)

    assert result is None
    assert len(shown) == 2
    assert talk.turns == 1
    assert talk.totals[True].answers == 0


def test_answers_may_be_long_unless_told_otherwise(engine: forerun.Engine) -> None:
    seen: list[str] = []
    Conversation(engine, {}).ask("a", lambda piece: seen.append(piece.text), lambda: len(seen) > 130)

    assert len(seen) == 131
    assert MOST_TOKENS > 131


def test_a_prompt_that_does_not_fit_is_not_said(engine: forerun.Engine) -> None:
    talk = Conversation(engine, SHORT)
    with pytest.raises(ValueError, match="shorten the prompt"):
        talk.ask("x" * 2000, ignored, never)

    assert talk.turns == 0


def test_it_may_begin_without_drafts(engine: forerun.Engine) -> None:
    assert not Conversation(engine, {"speculate": False}).speculate
    assert Conversation(engine, {}).speculate

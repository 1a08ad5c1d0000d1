from __future__ import annotations

import pytest

import forerun
from forerun.engine import timing as timed
from forerun.engine.timing import timed_answer
from forerun.testing import tiny_model


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


def test_the_answer_is_generates_own(engine: forerun.Engine) -> None:
    answer, seconds = timed_answer(engine, [1, 2, 3], {"max_new_tokens": 9})
    assert answer.ids == engine.generate([1, 2, 3], max_new_tokens=9).ids
    assert seconds > 0


def test_the_clock_starts_after_the_first_token(engine: forerun.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = 0
    stream = forerun.Engine.stream

    def counted(self: forerun.Engine, prompt: object, **options: object) -> object:
        nonlocal pieces
        for piece in stream(self, prompt, **options):
            pieces += 1
            yield piece

    monkeypatch.setattr(forerun.Engine, "stream", counted)
    monkeypatch.setattr(timed, "perf_counter", lambda: float(pieces))
    _, seconds = timed_answer(engine, [1, 2, 3], {"max_new_tokens": 9})
    assert seconds == 9  # eight more tokens and the end


def test_options_that_are_none_are_refused(engine: forerun.Engine) -> None:
    with pytest.raises(ValueError, match="unknown option 'temperament'"):
        timed_answer(engine, [1, 2, 3], {"temperament": 1})

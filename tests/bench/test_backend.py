import pytest

import forerun
from forerun.bench.backend import ForerunBackend, Sample
from forerun.testing import tiny_model

PROMPT = [5, 6, 7, 8, 5, 6, 7]


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


def ours(engine: forerun.Engine, drafter: str = "none") -> ForerunBackend:
    return ForerunBackend(drafter, "none", engine.using(drafter), {})


def test_a_method_answers_what_the_engine_generates(engine: forerun.Engine) -> None:
    result = engine.generate(PROMPT, max_new_tokens=12)
    for drafter in ("none", "lookup"):
        assert ours(engine, drafter).answer(PROMPT, 12).ids == result.ids


def test_a_sample_counts_the_tokens_after_the_first(engine: forerun.Engine) -> None:
    sample = ours(engine).answer(PROMPT, 12)
    assert (sample.first_tokens, sample.decoded) == (1, 11)
    assert sample.tokens_per_second == pytest.approx(11 / sample.decode_seconds)


def test_a_sample_has_the_statistics_of_its_own_answer_only(engine: forerun.Engine) -> None:
    backend = ours(engine, "lookup")
    first, second = (backend.answer(PROMPT, 12).stats for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.tokens == second.tokens == 12


def test_each_prompt_is_read_from_its_first_token(engine: forerun.Engine) -> None:
    backend = ours(engine)
    long = PROMPT * 30
    backend.answer(long, 2)
    rows: list[int] = []
    execute = engine.runner.execute

    def counting(requests):  # type: ignore[no-untyped-def]
        rows.extend(len(request.tokens) for request in requests)
        return execute(requests)

    engine.runner.execute = counting  # type: ignore[method-assign]
    try:
        backend.answer(long, 2)
    finally:
        del engine.runner.execute
    assert sum(rows) >= len(long)


def test_an_answer_of_one_token_has_no_rate() -> None:
    assert Sample((1,), 1, 0.1, 0.0, 1.0).tokens_per_second is None


def test_tokens_that_came_with_the_first_are_not_in_the_rate() -> None:
    assert Sample((1, 2, 3, 4, 5), 3, 0.1, 2.0, 1.0).tokens_per_second == 1


def test_the_memory_that_a_method_held_is_measured(engine: forerun.Engine) -> None:
    assert ours(engine).answer(PROMPT, 3).peak_mb > 50


@pytest.mark.parametrize("wanted", [True, False])
def test_a_method_minds_the_generation_config_where_that_is_wanted(wanted: bool) -> None:
    model = tiny_model("llama")
    model.generation_config.suppress_tokens = list(range(0, 97, 2))
    own = forerun.load(model)
    expected = own.generate(PROMPT, max_new_tokens=6, generation_config=wanted).ids

    assert ForerunBackend("none", "none", own, {}, wanted).answer(PROMPT, 6).ids == expected
    assert all(token % 2 for token in expected) == wanted


@pytest.mark.parametrize("drafter", ["none", "lookup", "suffix"])
def test_prompts_at_once_are_answered_as_each_alone_and_nothing_is_kept(engine: forerun.Engine, drafter: str) -> None:
    backend = ours(engine, drafter)
    prompts = [PROMPT, PROMPT[2:], [9, 8, 9, 8]]
    batch = backend.answer_all(prompts, 2, 10)
    assert list(batch.ids) == [engine.generate(prompt, max_new_tokens=10).ids for prompt in prompts]
    assert batch.tokens == sum(map(len, batch.ids))
    assert batch.seconds > 0


def test_no_answer_is_copied_when_a_prompt_comes_again(engine: forerun.Engine) -> None:
    backend = ForerunBackend("suffix", "plain", engine.using("suffix", "fixed"), {})
    first, again = (backend.answer([1, 2, 3], 8).stats for _ in range(2))

    assert first is not None
    assert again is not None
    assert again.drafted == first.drafted

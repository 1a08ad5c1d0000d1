import pytest

from forerun.bench.backend import Backend
from forerun.bench.load.measuring import REPEATS, measure_loads

from ..samples import Scripted

PROMPTS = [[number + 1] for number in range(4)]


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.bench.load.measuring.REST_SECONDS", 0.0)


def test_every_backend_answers_all_prompts_in_each_size_and_repeat() -> None:
    ticks: list[bool] = []
    backends = [Scripted("plain"), Scripted("lookup")]
    loads = measure_loads(backends, PROMPTS, (1, 4), 8, lambda: ticks.append(True))
    assert set(loads.batches) == {(name, size) for name in ("plain", "lookup") for size in (1, 4)}
    assert all(len(batches) == REPEATS for batches in loads.batches.values())
    assert all(len(batch.ids) == 4 for batches in loads.batches.values() for batch in batches)
    assert len(ticks) == REPEATS * 2
    assert not loads.failures


def test_warming_up_is_not_kept_and_asks_as_many_as_the_largest_size() -> None:
    backend = Scripted("plain")
    measure_loads([backend], PROMPTS, (1, 2), 8)
    assert backend.asked[:3] == [[1], [2], [1]]
    assert len(backend.asked) == 2 + REPEATS * 2 * len(PROMPTS)


def test_the_order_of_backends_changes_with_the_repeat() -> None:
    seen: list[str] = []

    class Seen(Scripted):  # type: ignore[misc]
        def answer_all(self, prompts, at_once, max_new_tokens):  # type: ignore[no-untyped-def]
            seen.append(self.name)
            return super().answer_all(prompts, at_once, max_new_tokens)

    measure_loads([Seen("a"), Seen("b")], PROMPTS, (2,), 8)
    assert seen == ["a", "b", "a", "b", "b", "a"]


def test_a_backend_that_answers_one_at_a_time_is_named_and_the_others_go_on() -> None:
    class Alone(Scripted):  # type: ignore[misc]
        answer_all = Backend.answer_all

    loads = measure_loads([Scripted("plain"), Alone("peer:plain")], PROMPTS, (2,), 8)
    assert loads.failures == {"peer:plain": "peer:plain answers one prompt at a time"}
    assert list(loads.batches) == [("plain", 2)]


def test_a_backend_that_fails_in_the_middle_is_asked_no_more() -> None:
    failing = Scripted("peer:plain", fails_at=[4])
    loads = measure_loads([failing], PROMPTS, (1, 2), 8)
    assert loads.failures == {"peer:plain": "peer peer:plain: out of memory"}
    assert len(failing.asked) == 4

import pytest
import torch

from forerun.core.law import Categorical
from forerun.core.policy import LengthPolicy
from forerun.core.values import Signals, Step
from forerun.policies.base import POLICIES, Readings, best, confidence, entropy, has_row, signals_of, top_probabilities
from forerun.policies.fixed import Fixed

LAW = Categorical(torch.tensor([0.1, 0.2, 0.7]))
LOGITS = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])


def test_a_drawn_tokens_confidence_is_its_probability_in_its_law() -> None:
    assert confidence(Step((1,), (-1,), (LAW,))) == pytest.approx(0.2)
    assert confidence(Step((1,), (-1,), (LAW,), LOGITS[:1])) == pytest.approx(0.2)


def test_a_chosen_tokens_confidence_is_its_softmax_in_the_row_that_gave_it() -> None:
    assert confidence(Step((1,), (-1,), (None,), LOGITS[:1])) == pytest.approx(float(LOGITS[0].softmax(-1)[1]))


def test_a_token_without_signals_is_certain() -> None:
    assert confidence(Step((1,), (-1,), (None,))) == 1


def test_a_token_of_a_row_without_a_softmax_has_no_confidence() -> None:
    row = torch.tensor([[0.0, torch.inf, 1.0]])
    assert confidence(Step((1,), (-1,), (None,), row)) == 0


def test_of_several_nodes_the_surest_counts() -> None:
    assert confidence(Step((0, 2), (-1, -1), (LAW, LAW))) == pytest.approx(0.7)
    siblings = Step((0, 2), (0, 1), (None, None), LOGITS)
    assert confidence(siblings) == pytest.approx(max(float(LOGITS[0].softmax(-1)[0]), float(LOGITS[1].softmax(-1)[2])))


def test_siblings_share_the_row_of_their_parent() -> None:
    siblings = Step((0, 2), (-1, -1), (None, None), LOGITS[:1])
    assert confidence(siblings) == pytest.approx(float(LOGITS[0].softmax(-1)[2]))


def test_half_precision_rows_are_summed_in_float32() -> None:
    row = torch.zeros(1, 50_000, dtype=torch.float16)
    assert confidence(Step((1,), (-1,), (None,), row)) == pytest.approx(1 / 50_000, rel=1e-3)


def test_the_row_is_told_by_its_best_its_entropy_and_its_top_whichever_token_was_drawn() -> None:
    row = LOGITS[0].softmax(-1)
    step = Step((1,), (-1,), (LAW,), LOGITS[:1])
    assert best(step) == pytest.approx(float(row[1]))
    assert entropy(step) == pytest.approx(-float((row * row.log()).sum()))
    assert top_probabilities(step, 2) == pytest.approx((float(row[1]), float(row[2])))
    assert top_probabilities(step, 5) == pytest.approx((*row.sort(descending=True).values.tolist(), 0, 0))


def test_a_row_with_an_impossible_token_has_an_entropy() -> None:
    row = torch.tensor([[0.0, 0.0, -torch.inf]])
    assert entropy(Step((1,), (-1,), (None,), row)) == pytest.approx(0.6931472)


def test_of_several_rows_the_surest_tells() -> None:
    siblings = Step((0, 2), (0, 1), (None, None), LOGITS)
    assert best(siblings) == pytest.approx(float(LOGITS[1].softmax(-1)[0]))
    assert entropy(siblings) == pytest.approx(entropy(Step((0,), (-1,), (None,), LOGITS[1:])))


def test_a_step_without_a_row_is_certain_and_leaves_nothing_to_record() -> None:
    step = Step((1,), (-1,), (None,))
    assert (best(step), entropy(step), top_probabilities(step, 2)) == (1, 0, (1, 0))
    assert not has_row(step)
    assert signals_of(step) is None


def test_recorded_signals_stand_in_for_the_row() -> None:
    live = Step((1,), (-1,), (LAW,), LOGITS[:1])
    recorded = signals_of(live, 3)
    assert recorded is not None
    replayed = Step((1,), (-1,), (None,), signals=recorded)
    assert has_row(live)
    assert has_row(replayed)
    for read in (confidence, best, entropy, lambda step: top_probabilities(step, 2), lambda step: signals_of(step, 3)):
        assert read(replayed) == read(live)


def test_more_top_probabilities_than_were_recorded_are_refused() -> None:
    with pytest.raises(ValueError, match="hold 2 top probabilities, 3 are needed"):
        top_probabilities(Step((1,), (-1,), (None,), signals=Signals(0.2, 0.7, 0.8, (0.7, 0.2))), 3)


def test_a_policy_must_say_when_to_stop_and_need_not_observe() -> None:
    with pytest.raises(TypeError, match="abstract"):
        LengthPolicy()  # type: ignore[abstract]
    Fixed(1).observe([], None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", POLICIES.names)
def test_every_policy_tells_what_it_does_and_where_it_comes_from(name: str) -> None:
    entry = POLICIES.entry(name)
    assert entry.summary.endswith(".")
    assert entry.source


def needs_nothing(name: str) -> bool:
    return all(option.default is not option.empty for option in POLICIES.entry(name).options.values())


@pytest.mark.parametrize("name", list(filter(needs_nothing, POLICIES.names)))
def test_every_request_gets_a_policy_of_its_own(name: str) -> None:
    make = POLICIES.entry(name).build()
    assert make() is not make()


def test_each_step_of_a_running_draft_is_read_once() -> None:
    read: list[int] = []

    def token(step: Step) -> int:
        read.append(step.tokens[0])
        return step.tokens[0]

    steps = [Step((n,), (-1,), (None,)) for n in range(4)]
    readings = Readings(token)
    assert [list(readings.of(steps[:n])) for n in (1, 2, 3)] == [[0], [0, 1], [0, 1, 2]]
    assert read == [0, 1, 2]
    assert list(readings.of([steps[0], steps[3]])) == [0, 3]
    readings.clear()
    assert list(readings.of([])) == []
    assert read == [0, 1, 2, 3]

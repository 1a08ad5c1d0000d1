from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import Engine, load
from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.values import Sampling
from forerun.testing import tiny_model
from forerun.train.data.examples import Example
from forerun.train.heads.acceptance_data import Drafted, collect, examine, sampling_of

WARM = Sampling(1.0)
SMALL = 5


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    """A target and a draft model of a few tokens, so that every draw can be gone through."""
    return tiny_model("llama", vocab_size=SMALL), tiny_model("llama", seed=7, vocab_size=SMALL, num_hidden_layers=1)


def engine(pair: tuple[Any, Any]) -> Engine:
    return load(pair[0], drafter="draft_model", drafter_options={"model": pair[1]})


def example(answer: Sequence[int], prompt: Sequence[int] = (1, 2, 3)) -> Example:
    return Example((*prompt, *answer), len(prompt))


def examined(built: Engine, one: Example, sampling: Sampling, mixing: float, seed: int) -> Drafted:
    async def source() -> AsyncGenerator[Drafted]:
        with built.borrow(one.ids) as (target, drafter):
            yield await examine(target, drafter, one, sampling, mixing, Seeded(seed))

    return next(drive(source()))


def laws(model: Any, ids: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([list(ids)]), use_cache=False).logits[0].softmax(-1)


def test_labels_are_the_chances_of_acceptance_of_what_was_drawn(pair: tuple[Any, Any]) -> None:
    """Over many draws of one token: each value min(1, p/q) comes as often as q has it, and the mean is sum min(p, q)."""
    one = example([4])
    p, q = (laws(model, (1, 2, 3))[-1] for model in pair)
    built = engine(pair)
    values = torch.cat([examined(built, one, WARM, 0.0, seed).accepted for seed in range(400)])

    for token in range(SMALL):
        ratio = float((p[token] / q[token]).clamp(max=1))
        alike = (q[(p / q).clamp(max=1).sub(ratio).abs() < 1e-5]).sum()
        assert float((values - ratio).abs().lt(1e-4).float().mean()) == pytest.approx(float(alike), abs=0.09)
    assert float(values.mean()) == pytest.approx(float(torch.minimum(p, q).sum()), abs=0.07)


def test_each_label_is_of_its_own_place(pair: tuple[Any, Any]) -> None:
    """Greedy laws are points: a label is 1 where both argmaxes agree after the answer's own tokens."""
    one = example([4, 0, 2, 3, 1, 1, 4])
    best = [laws(model, one.ids).argmax(-1) for model in pair]
    agree = [float(best[0][i] == best[1][i]) for i in range(one.start - 1, len(one.ids) - 1)]

    assert examined(engine(pair), one, Sampling(), 0.0, 0).accepted.tolist() == agree
    assert 0 < sum(agree) < len(agree)


def test_states_are_of_the_rows_that_read_the_drafted_tokens(pair: tuple[Any, Any]) -> None:
    one = example([4, 0, 2, 3])
    draft = pair[1]
    drawn = laws(draft, one.ids).argmax(-1)[one.start - 1 : -1].tolist()
    with torch.no_grad():
        expected = draft.model(torch.tensor([[*one.ids[: one.start], *drawn]]), use_cache=False).last_hidden_state[0]

    found = examined(engine(pair), one, Sampling(), 0.0, 0)
    torch.testing.assert_close(found.hidden, expected[one.start :], atol=1e-4, rtol=1e-4)


def test_mixing_keeps_tokens_of_the_answer_and_learns_from_the_others(pair: tuple[Any, Any]) -> None:
    one = example([4, 0, 2, 3] * 10)
    drawn = laws(pair[1], one.ids).argmax(-1)[one.start - 1 : -1]
    same = int((drawn == torch.tensor(one.ids[one.start :])).sum())
    counts = [len(examined(engine(pair), one, Sampling(), 0.5, seed)) for seed in range(6)]

    assert len(examined(engine(pair), one, Sampling(), 0.0, 0)) == 40
    assert same < min(counts)
    assert sum(counts) / 6 == pytest.approx(same + (40 - same) / 2, abs=6)


def test_states_after_kept_tokens_see_them(pair: tuple[Any, Any]) -> None:
    """With the same draws, mixing changes the text that the drafter reads, and so its states."""
    one = example([4, 0, 2, 3, 4, 0])
    plain = examined(engine(pair), one, Sampling(), 0.0, 0)
    mixed = [examined(engine(pair), one, Sampling(), 0.9, seed) for seed in range(8)]

    assert any(len(some) and not torch.isin(some.hidden, plain.hidden).all() for some in mixed)


def test_texts_are_read_together_and_alike(pair: tuple[Any, Any]) -> None:
    built = engine(pair)
    texts = [example([4, 0, 2, 3][: 1 + index % 4], (1, index % 5, 3, 2)) for index in range(7)]
    alone = dict(collect(built, texts, WARM, 0.2, 3, max_batch=1))
    together = dict(collect(built, texts, WARM, 0.2, 3, max_batch=4))

    assert alone.keys() == together.keys() == set(range(7))
    for index in range(7):
        torch.testing.assert_close(alone[index].accepted, together[index].accepted, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(alone[index].hidden, together[index].hidden, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("drafter", "options"), [("self", {"exit_layer": 2}), ("self", {"skip_mlp": (1, 2)})])
def test_a_part_of_the_target_gives_states_too(pair: tuple[Any, Any], drafter: str, options: dict[str, Any]) -> None:
    built = load(pair[0], drafter=drafter, drafter_options=options)
    found = dict(collect(built, [example([4, 0, 2])], WARM, 0.0, 0))

    assert found[0].hidden.shape == (3, 32)
    assert found[0].hidden.dtype == torch.float32


def test_whole_drafts_of_the_target_are_always_accepted(pair: tuple[Any, Any]) -> None:
    built = load(pair[0], drafter="self")

    assert dict(collect(built, [example([4, 0, 2])], WARM, 0.0, 0))[0].accepted.tolist() == pytest.approx([1.0] * 3)


@pytest.mark.parametrize(
    ("texts", "sampling", "mixing", "message"),
    [
        ([example([1], (1, 2))], WARM, 0.0, "example 1 has a prompt of 2 tokens; at least 3 are needed"),
        ([example([1])], WARM, 1.0, r"mixing rate must be in \[0, 1\), got 1"),
        ([example([1])], Sampling(1.0, presence_penalty=1.0), 0.0, "penalties and processors can't be learnt from"),
    ],
)
def test_what_can_not_be_learnt_from_is_refused(
    pair: tuple[Any, Any], texts: list[Example], sampling: Sampling, mixing: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        next(collect(engine(pair), texts, sampling, mixing, 0))


def write(path: Path, *made_by: Any) -> Path:
    lines = ({"prompt_ids": [1], "answer_ids": [2], **({} if one is None else {"made_by": one})} for one in made_by)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_labels_follow_the_law_that_the_answers_were_drawn_by(tmp_path: Path) -> None:
    warm = {"temperature": 0.7, "top_p": 0.9, "seed": 1}

    assert sampling_of(write(tmp_path / "a", warm, warm)) == Sampling(0.7, top_p=0.9)
    assert sampling_of(write(tmp_path / "a", warm), 0.7) == Sampling(0.7, top_p=0.9)
    assert sampling_of(write(tmp_path / "b", {"temperature": 0.0})) == Sampling()
    assert sampling_of(write(tmp_path / "c", None)) == Sampling(1.0)
    assert sampling_of(write(tmp_path / "c", None), 0.5) == Sampling(0.5)


def test_labels_of_another_law_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a", {"temperature": 0.7}, {"temperature": 0.8})
    with pytest.raises(ValueError, match="holds answers of several temperatures or top_p"):
        sampling_of(file)
    with pytest.raises(ValueError, match=r"were drawn at temperature 0\.7, so labels can't be of 1"):
        sampling_of(write(tmp_path / "b", {"temperature": 0.7}), 1.0)

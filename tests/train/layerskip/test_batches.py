from __future__ import annotations

import pytest
import torch

from forerun.errors import UnsupportedModel
from forerun.testing import FAMILIES, tiny_model
from forerun.train.data.examples import Example
from forerun.train.layerskip.batches import Rows, check_packing, collate, labels_of, ordered, packed

ONE, TWO, THREE = Example((5, 6, 7, 8), 2), Example((9, 3), 1), Example((4, 4, 4), 1)


def test_only_the_answer_has_labels() -> None:
    assert labels_of(ONE) == [-100, -100, 7, 8]


def test_rows_are_padded_on_the_right_and_masked() -> None:
    rows = Rows([(ONE,), (TWO,)])

    batch = collate([rows[0], rows[1]])

    assert batch["input_ids"].tolist() == [[5, 6, 7, 8], [9, 3, 0, 0]]
    assert batch["labels"].tolist() == [[-100, -100, 7, 8], [-100, 3, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert set(batch) == {"input_ids", "labels", "attention_mask"}


def test_packed_rows_hold_as_much_as_fits() -> None:
    assert packed([TWO, ONE, THREE], 6) == [(ONE, TWO), (THREE,)]
    assert packed([TWO, ONE, THREE], 100) == [(ONE, THREE, TWO)]


def test_packing_loses_no_example() -> None:
    examples = [Example(tuple(range(1, length)), 1) for length in range(3, 20)]

    rows = packed(examples, 24)

    assert sorted(len(example.ids) for row in rows for example in row) == list(range(2, 19))
    assert max(sum(len(example.ids) for example in row) for row in rows) <= 24


def test_an_example_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="4 tokens doesn't fit a packed row of 3"):
        packed([TWO, ONE], 3)


def test_each_pass_has_every_row_once() -> None:
    order = ordered([3, 1, 2, 5, 4, 6, 7], batch=2, steps=7, seed=0)

    assert len(order) == 14
    assert sorted(order[:7]) == sorted(order[7:]) == list(range(7))
    assert order[:7] != order[7:]


def test_rows_of_a_batch_are_of_like_length() -> None:
    lengths = [index % 20 for index in range(400)]

    order = ordered(lengths, batch=10, steps=40, seed=1)

    spans = [[lengths[row] for row in order[start : start + 10]] for start in range(0, 400, 10)]
    assert max(max(span) - min(span) for span in spans) <= 1
    assert [span[0] for span in spans] != sorted(span[0] for span in spans)


def test_the_order_depends_on_the_seed_alone() -> None:
    def drawn(seed: int) -> list[int]:
        return ordered([1] * 50, 5, 10, seed)

    assert drawn(0) == drawn(0) != drawn(1)


def test_packed_positions_restart_and_padding_has_its_own() -> None:
    rows = Rows([(ONE, TWO), (THREE,)], packed=True)

    batch = collate([rows[0], rows[1]])

    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1], [0, 1, 2, 0, 1, 2]]
    assert batch["labels"].tolist() == [[-100, -100, 7, 8, -100, 3], [-100, 4, 4, -100, -100, -100]]
    assert "attention_mask" not in batch


@pytest.mark.parametrize(
    ("family", "attention"),
    [
        ("llama", "sdpa"),
        ("llama", "eager"),
        ("mistral", "sdpa"),
        ("mistral", "eager"),
        ("qwen3", "sdpa"),
        ("gemma2", "eager"),
    ],
)
def test_packed_examples_have_the_logits_they_have_alone(family: str, attention: str) -> None:
    model = tiny_model(family, attn_implementation=attention)
    first, second = Example(tuple(range(3, 15)), 1), Example(tuple(range(40, 54)), 1)
    rows = Rows([(first, second), (second,)], packed=True)

    with torch.no_grad():
        batch = collate([rows[0], rows[1]])
        together = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
        alone = [model(input_ids=torch.tensor([one.ids])).logits[0] for one in (first, second)]

    assert torch.allclose(together[0, :12], alone[0], atol=1e-4)
    assert torch.allclose(together[0, 12:], alone[1], atol=1e-4)
    assert torch.allclose(together[1, :14], alone[1], atol=1e-4)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"opt", "gpt_oss"}))
def test_packing_is_checked_by_running_it(family: str) -> None:
    model = tiny_model(family).train()

    check_packing(model)

    assert model.training


@pytest.mark.parametrize("family", ["opt", "gpt_oss"])
def test_a_model_that_lets_packed_examples_see_each_other_is_refused(family: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"lets packed examples see each other .*; leave packing out"):
        check_packing(tiny_model(family))

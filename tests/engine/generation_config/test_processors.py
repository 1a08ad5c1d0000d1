"""Processors of a generation config: the kinds and the order of transformers, and values that none can be made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessorList

from forerun.engine.generation_config.processors import (
    AFTER_PENALTIES,
    BEFORE_PENALTIES,
    LAST,
    WARPERS,
    ProcessorContext,
    made_of,
)
from forerun.errors import UnsupportedOption
from forerun.testing import VOCABULARY, tiny_model

CPU = torch.device("cpu")
EVERYTHING: dict[str, Any] = {
    "sequence_bias": [[[3], 1.0], [[4, 5], -2.0]],
    "encoder_repetition_penalty": 1.5,
    "encoder_no_repeat_ngram_size": 2,
    "bad_words_ids": [[7], [8, 9]],
    "min_new_tokens": 3,
    "forced_bos_token_id": 6,
    "forced_eos_token_id": [2],
    "remove_invalid_values": True,
    "exponential_decay_length_penalty": [2, 1.5],
    "suppress_tokens": [1, 4],
    "begin_suppress_tokens": [3],
    "renormalize_logits": True,
    "top_h": 0.5,
    "typical_p": 0.9,
    "epsilon_cutoff": 0.01,
    "eta_cutoff": 0.02,
}


def place(ids: tuple[int, ...] = (5, 6, 7), ends: tuple[int, ...] = (2,), limit: int = 12) -> ProcessorContext:
    return ProcessorContext(ids, limit, ends, VOCABULARY, CPU)


def made(fields: dict[str, Any], where: ProcessorContext | None = None) -> dict[str, Any]:
    kinds = {**BEFORE_PENALTIES, **AFTER_PENALTIES, **WARPERS, **LAST}
    return dict(made_of(kinds, fields, place() if where is None else where))


def of_transformers(fields: dict[str, Any], where: ProcessorContext) -> list[Any]:
    """What generate would make, warpers among them."""
    asked = GenerationConfig(**fields, do_sample=True, max_length=where.limit, top_k=0)
    asked._eos_token_tensor = where.end_ids
    made = tiny_model("gpt2")._get_logits_processor(
        asked, len(where.ids), where.prompt, logits_processor=LogitsProcessorList(), device="cpu"
    )
    return list(made)


def test_kinds_and_order_are_those_of_transformers() -> None:
    found = made(EVERYTHING)

    assert {*found} == {*EVERYTHING}
    assert [type(one) for one in found.values()] == [type(one) for one in of_transformers(EVERYTHING, place())]


@pytest.mark.parametrize("field", EVERYTHING)
@pytest.mark.parametrize("written", [(), (40,), (40, 8, 40, 8, 41, 42, 43, 44)])
@pytest.mark.parametrize("ids", [(5,), (5, 6, 7)])
def test_each_does_to_a_row_what_transformers_own_does(
    field: str, written: tuple[int, ...], ids: tuple[int, ...]
) -> None:
    fields = {field: EVERYTHING[field], "forced_bos_token_id": 6}
    where = place(ids, limit=len(ids) + 9)
    text = torch.tensor([[*ids, *written]])
    row = torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(len(written)))
    mine, theirs = row.clone(), row.clone()

    for one in made(fields, where).values():
        mine = one(text, mine)
    for one in of_transformers(fields, where):
        theirs = one(text, theirs)

    assert torch.equal(mine, theirs)


def test_min_length_counts_the_prompt() -> None:
    one = made({"min_length": 5})["min_length"]
    row = torch.zeros(1, VOCABULARY)

    assert float(one(torch.tensor([[5, 6, 7, 8]]), row)[0, 2]) == -torch.inf
    assert float(one(torch.tensor([[5, 6, 7, 8, 9]]), row)[0, 2]) == 0


@pytest.mark.parametrize("field", ["min_length", "min_new_tokens", "exponential_decay_length_penalty"])
def test_what_acts_on_ends_alone_is_left_out_where_nothing_ends_a_text(field: str) -> None:
    fields = {"min_length": 3, "min_new_tokens": 3, "exponential_decay_length_penalty": [1, 2.0]}

    assert [*made({field: fields[field]}, place(ends=()))] == []
    assert [*made({field: fields[field]}, place(ends=(-1, VOCABULARY)))] == []
    assert [*made({field: fields[field]}, place(ends=(2, 4)))] == [field]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sequence_bias", [[[VOCABULARY], 1.0]]),
        ("sequence_bias", {(3, VOCABULARY): 1.0}),
        ("sequence_bias", [[[3], "much"]]),
        ("sequence_bias", 3),
        ("bad_words_ids", [[VOCABULARY]]),
        ("bad_words_ids", [3]),
        ("forced_bos_token_id", VOCABULARY),
        ("forced_bos_token_id", "x"),
        ("forced_eos_token_id", [2, VOCABULARY]),
        ("exponential_decay_length_penalty", [3]),
        ("exponential_decay_length_penalty", ["a", "b"]),
        ("encoder_repetition_penalty", -1.0),
        ("encoder_no_repeat_ngram_size", 2.5),
        ("min_length", 2.5),
        ("min_new_tokens", -2),
        ("suppress_tokens", ["a"]),
        ("begin_suppress_tokens", "abc"),
        ("suppress_tokens", {"a": 1}),
        ("top_h", 2.0),
        ("typical_p", -0.5),
    ],
)
def test_a_value_that_no_processor_takes_is_refused_with_its_field(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedOption, match=rf"generation config has {field}=.*generation_config=False"):
        made({field: value})

"""A prompt in any form is answered as transformers' generate answers it, or refused with a sentence, wherever given."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from forerun import Engine, load
from forerun.testing import END, tiny_model, tiny_tokenizer

PAD = 3
TEXTS = ["to be", "or not to be", "abc"]
MESSAGES = [{"role": "user", "content": "to be"}]
NEW = 6


@cache
def model(pad: int | None = PAD, family: str = "llama") -> Any:
    tokens = {"vocab_size": len(tokenizer()), "pad_token_id": pad, "eos_token_id": END}
    return tiny_model(family, **tokens)


@cache
def tokenizer(side: str = "left", pad: int = PAD) -> Any:
    made = tiny_tokenizer()
    made.padding_side = side
    made.pad_token = made.convert_ids_to_tokens(pad)
    return made


@cache
def engine(pad: int | None = PAD, family: str = "llama") -> Engine:
    return load(model(pad, family), tiny_tokenizer() if pad is None else tokenizer(), "lookup")


def batch(side: str = "left", pad: int = PAD) -> BatchEncoding:
    encoded: BatchEncoding = tokenizer(side, pad)(TEXTS, padding=True, return_tensors="pt")
    return encoded


def written(ids: torch.Tensor, pad: int | None = PAD, family: str = "llama", **more: Any) -> list[tuple[int, ...]]:
    """What transformers' generate adds to each row, without the padding that follows an end."""
    rows = model(pad, family).generate(ids, max_new_tokens=NEW, do_sample=False, **more)[:, ids.shape[1] :].tolist()
    return [tuple(row[: row.index(END) + 1] if END in row else row) for row in rows]


def ids_of(results: Any) -> list[tuple[int, ...]]:
    return [result.ids for result in results]


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_a_padded_tensor_without_a_mask_is_read_as_generate_reads_it(family: str) -> None:
    ids = batch()["input_ids"]

    answers = ids_of(engine(family=family).generate(ids, max_new_tokens=NEW))
    assert answers == written(ids, family=family)
    assert answers == ids_of(engine(family=family).generate(TEXTS, max_new_tokens=NEW))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pad", [PAD, END])
def test_a_padded_batch_with_its_mask_is_its_texts(side: str, pad: int) -> None:
    given = batch(side, pad)

    answers = ids_of(engine(pad).generate(given, max_new_tokens=NEW))
    assert answers == ids_of(engine(pad).generate(TEXTS, max_new_tokens=NEW))
    if side == "left":
        assert answers == written(given["input_ids"], pad, attention_mask=given["attention_mask"])


@pytest.mark.parametrize("pad", [None, END])
def test_a_padded_tensor_that_generate_takes_for_text_is_refused(pad: int | None) -> None:
    ids = batch(pad=END)["input_ids"]

    with pytest.raises(ValueError, match=f"row 2 of the batch begins with token {END}, which may be padding or text"):
        engine(pad).generate(ids, max_new_tokens=NEW)


def test_a_pad_token_that_is_set_later_counts() -> None:
    own, tokens = tiny_model("llama", vocab_size=len(tokenizer()), eos_token_id=END), tiny_tokenizer()
    late = load(own, tokens)
    ids = batch(pad=PAD)["input_ids"]
    tokens.pad_token = tokenizer().pad_token
    with pytest.raises(ValueError, match=f"row 2 of the batch begins with token {PAD}"):
        late.generate(ids, max_new_tokens=NEW)
    own.generation_config.pad_token_id = PAD

    assert ids_of(late.generate(ids, max_new_tokens=NEW)) == ids_of(late.generate(TEXTS, max_new_tokens=NEW))


@pytest.mark.parametrize("pad", [None, PAD, END])
def test_a_tensor_without_padding_is_text(pad: int | None) -> None:
    ids = torch.tensor([[END, 70, 71, 72], [END, 80, 81, 82]])  # both begin with what would pad

    assert ids_of(engine(pad).generate(ids, max_new_tokens=NEW)) == written(ids, pad)


ENCODED = tokenizer()("to be")["input_ids"]
ONE: dict[str, Any] = {
    "text": "to be",
    "numpy text": np.str_("to be"),
    "ids": ENCODED,
    "tuple": tuple(ENCODED),
    "numpy integers": [np.int64(token) for token in ENCODED],
    "tensors": [torch.tensor(token) for token in ENCODED],
    "array": np.array(ENCODED),
    "tensor": torch.tensor(ENCODED),
    "encoding": tokenizer()("to be"),
    "dict": {"input_ids": ENCODED},
    "tensor of one row": torch.tensor([ENCODED]),
    "array of one row": np.array([ENCODED]),
    "encoding of one row": tokenizer()("to be", return_tensors="pt"),
    "padded row": tokenizer()("to be", return_tensors="pt", padding="max_length", max_length=9),
}


@pytest.mark.parametrize("form", ONE)
def test_a_form_of_one_prompt_is_answered_alike_everywhere(form: str) -> None:
    wanted = engine().generate("to be", max_new_tokens=NEW)
    prompt, options = ONE[form], {"max_new_tokens": NEW}

    whole = engine().generate(prompt, **options)
    assert (whole[0] if isinstance(whole, list) else whole).ids == wanted.ids
    assert isinstance(whole, list) == ("row" in form)
    assert [result.ids for _, result in engine().each([(prompt, options)])] == [wanted.ids]
    assert list(engine().stream(prompt, **options))[-1].result.ids == wanted.ids  # type: ignore[union-attr]


def test_a_list_may_hold_every_form() -> None:
    wanted = engine().generate("to be", max_new_tokens=NEW).ids

    assert ids_of(engine().generate(list(ONE.values()), max_new_tokens=NEW)) == [wanted] * len(ONE)
    parts = [{"role": "user", "content": [{"type": "text", "text": "to "}, {"type": "text", "text": "be"}]}]
    chats = engine().generate([MESSAGES, "to be", parts], max_new_tokens=NEW)
    assert chats[0].ids == chats[2].ids != chats[1].ids == wanted


WRONG: dict[str, Any] = {
    "none": None,
    "number": 3,
    "float": 3.0,
    "bool": True,
    "bytes": b"to be",
    "set": {1, 2},
    "generator": (token for token in (1, 2)),
    "empty": "",
    "empty list": [],
    "list in a list": [[[1, 2]]],
    "empty in a list": ["to be", ""],
    "floats": [1.0, 2.0],
    "bools": [True, False],
    "float tensor": torch.tensor([[1.0]]),
    "float array": np.array([1.5]),
    "tensor without dimensions": torch.tensor(3),
    "array without dimensions": np.array(3),
    "cube": torch.ones(1, 1, 1, dtype=torch.long),
    "negative id": [1, -1],
    "huge id": [1, 2**70],
    "ids and text": [1, "to be"],
    "text and ids": ["to be", 1],
    "messages and text": [*MESSAGES, "to be"],
    "message": MESSAGES[0],
    "message without a role": [{"content": "to be"}],
    "message without content": [{"role": "user", "content": None}],
    "picture": [{"role": "user", "content": [{"type": "image"}]}],
    "lone surrogate": "to\ud800",
    "lone surrogate in a message": [{"role": "user", "content": "to\ud800"}],
    "mask with holes": {"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]},
    "mask of another length": {"input_ids": [1, 2, 3], "attention_mask": [1, 1]},
    "mask of zeros": {"input_ids": torch.ones(1, 2), "attention_mask": torch.zeros(1, 2)},
    "dict without ids": {"text": "to be"},
}


@pytest.mark.parametrize("form", WRONG)
def test_what_is_no_prompt_is_refused_with_a_sentence_everywhere(form: str) -> None:
    prompt = WRONG[form]
    for ask in (
        lambda: engine().generate(prompt, max_new_tokens=1),
        lambda: engine().generate(["to be", prompt], max_new_tokens=1),
        lambda: list(engine().each([(prompt, {"max_new_tokens": 1})])),
        lambda: list(engine().stream(prompt, max_new_tokens=1)),
    ):
        with pytest.raises(ValueError) as refused:  # noqa: PT011  the sentences are checked where they are made
            ask()
        assert "\n" not in str(refused.value)
        str(refused.value).encode()  # a sentence that every terminal can take

from __future__ import annotations

import pytest

import forerun
from forerun.engine.prompts.prediction import predicted_tokens
from forerun.errors import UnsupportedOption
from forerun.testing import tiny_model


class Letters:
    """A tokenizer of letters, which puts a 0 before what is no part of a longer text."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [ord(letter) - ord("a") + 1 for letter in text]


def test_a_text_is_encoded_as_a_part_of_a_longer_one() -> None:
    assert predicted_tokens("abc", Letters(), 97) == (1, 2, 3)


def test_ids_are_taken_as_they_are() -> None:
    assert predicted_tokens([5, 6], None, 97) == (5, 6)
    assert predicted_tokens(None, None, 97) == ()


def test_a_text_needs_a_tokenizer() -> None:
    with pytest.raises(UnsupportedOption, match="needs a tokenizer"):
        predicted_tokens("abc", None, 97)


@pytest.mark.parametrize("token", [-1, 97])
def test_a_token_that_the_model_lacks_is_refused(token: int) -> None:
    with pytest.raises(ValueError, match=rf"in 0..96, got {token}"):
        predicted_tokens([1, token], None, 97)


@pytest.mark.parametrize("empty", ["", [], ()])
def test_an_empty_prediction_is_refused(empty: str | list[int]) -> None:
    with pytest.raises(ValueError, match="prediction must not be empty"):
        forerun.load(tiny_model("llama")).generate([1, 2], prediction=empty)

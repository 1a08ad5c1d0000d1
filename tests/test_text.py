"""Text from tokens: whole characters, stop strings as if tokens came singly."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.testing import tiny_tokenizer
from forerun.text import BROKEN, Detokenizer, StopScanner

TOKENIZER = tiny_tokenizer()


def pieces(ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(TOKENIZER)
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


def scan(texts: list[str], *stop: str) -> tuple[str, str | None]:
    scanner = StopScanner(stop)
    shown = ""
    for text in texts:
        shown += scanner.push(text)
        if scanner.found is not None:
            return shown, scanner.found
    return shown + scanner.flush(), None


def test_pieces_join_to_the_whole_text() -> None:
    ids = TOKENIZER("Grüße, 世界! 🙂 ok").input_ids
    assert "".join(pieces(ids)) == "Grüße, 世界! 🙂 ok"


def test_a_character_waits_until_it_is_whole() -> None:
    ids = TOKENIZER("a€b").input_ids
    assert pieces(ids) == ["a", "", "", "€", "b", ""]


def test_an_unfinished_character_comes_with_the_flush() -> None:
    ids = TOKENIZER("a€").input_ids[:-1]
    shown = pieces(ids)
    assert shown[:-1] == ["a", "", ""]
    assert BROKEN in shown[-1]


def test_special_tokens_leave_no_text() -> None:
    assert "".join(pieces(TOKENIZER("<user>hi<end>").input_ids)) == "hi"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=30))
def test_any_bytes_join_to_what_the_tokenizer_decodes(ids: list[int]) -> None:
    assert "".join(pieces(ids)) == TOKENIZER.decode(ids, skip_special_tokens=True)


def test_text_without_a_stop_string_passes() -> None:
    assert scan(["hello ", "world"], "xyz") == ("hello world", None)


def test_a_stop_string_across_pieces_is_cut_off_and_never_shown() -> None:
    assert scan(["one #", "#", "# two"], "###") == ("one ", "###")


def test_the_earliest_completion_wins() -> None:
    assert scan(["abcdef"], "cdef", "bcd") == ("a", "bcd")
    assert scan(["abcdef"], "bcd", "cdef") == ("a", "bcd")


def test_of_two_that_end_together_the_longer_wins() -> None:
    assert scan(["abc"], "c", "bc") == ("a", "bc")


def test_what_may_become_a_stop_string_is_held_back() -> None:
    scanner = StopScanner(["END"])
    assert scanner.push("the E") == "the "
    assert scanner.push("N") == ""
    assert scanner.push("x") == "ENx"


def test_an_overlapping_false_start_does_not_hide_the_real_one() -> None:
    assert scan(["a", "a", "b"], "ab") == ("a", "ab")
    assert scan(list("ababc"), "abc") == ("ab", "abc")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopScanner(["x", ""])


def test_pieces_of_any_size_find_the_same_stop() -> None:
    rng = random.Random(5)
    for _ in range(300):
        text = "".join(rng.choice("ab") for _ in range(12))
        stops = ["".join(rng.choice("ab") for _ in range(rng.randint(2, 4))) for _ in range(2)]
        cut = rng.randint(0, 12)
        assert scan([text[:cut], text[cut:]], *stops)[1] == scan(list(text), *stops)[1]
        assert scan(list(text), *stops) == by_definition(text, stops)


def by_definition(text: str, stops: list[str]) -> tuple[str, str | None]:
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None

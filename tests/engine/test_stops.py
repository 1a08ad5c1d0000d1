"""Stop strings in growing text, with special tokens and without."""

from __future__ import annotations

import random

import pytest

from forerun.engine.stops import StopScanner


def scan(texts: list[str], *stop: str) -> tuple[str, str | None]:
    scanner = StopScanner(stop)
    shown = ""
    for text in texts:
        shown += scanner.push(text)
        if scanner.found is not None:
            return shown, scanner.found
    return shown + scanner.flush(), None


def scan_marked(pieces: list[tuple[str, str]], marked: list[str], stop: tuple[str, ...] = ()) -> tuple[str, str | None]:
    """Of pieces of the shown text and of the text with special tokens."""
    scanner = StopScanner(stop, marked)
    shown = ""
    for piece in pieces:
        shown += scanner.push(*piece)
        if scanner.found is not None:
            return shown, scanner.found
    return shown + scanner.flush(), None


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


HELLO = [("hello", "hello"), ("", "<end>"), (" world", " world")]


@pytest.mark.parametrize(
    ("stop", "shown"),
    [("<end>", "hello"), ("lo<end>", "hel"), ("<end> wor", "hello"), ("o<end> w", "hell"), ("<end>x", "hello world")],
)
def test_a_stop_string_with_a_special_token_is_found_where_the_token_stands(stop: str, shown: str) -> None:
    assert scan_marked(HELLO, [stop]) == (shown, None if stop == "<end>x" else stop)


def test_what_may_become_a_stop_string_with_a_special_token_is_held_back() -> None:
    scanner = StopScanner([], ["lo<end>"])
    assert scanner.push("hello", "hello") == "hel"
    assert scanner.push("", "<user>") == "lo"


def test_the_earliest_of_shown_and_special_stop_strings_wins() -> None:
    assert scan_marked([("ab", "ab"), ("", "<end>"), ("cd", "cd")], ["<end>c"], ("cd",)) == ("ab", "<end>c")
    assert scan_marked([("ab", "ab"), ("", "<end>"), ("cd", "cd")], ["<end>cd"], ("c",)) == ("ab", "c")
    assert scan_marked([("ab", "ab"), ("", "<end>"), ("cd", "cd")], ["<end>cd"], ("cd",)) == ("ab", "<end>cd")


def test_text_that_is_unsure_may_complete_a_stop_string() -> None:
    scanner = StopScanner(["b\n"])
    assert scanner.push("ab") == "a"
    assert scanner.push("", unsure="\n") == ""
    assert scanner.found == "b\n"


def test_text_that_is_unsure_is_not_shown_yet() -> None:
    scanner = StopScanner(["xyz"])
    assert [scanner.push("", unsure="?"), scanner.push("a"), scanner.flush()] == ["", "a", ""]

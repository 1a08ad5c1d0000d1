"""Text from tokens: what the tokenizer decodes from all of them, in whole characters, up to a stop string."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from forerun.engine.text import BROKEN, Detokenizer, TextStream, backend_of, joins, special_tokens
from forerun.testing import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def pieces(ids: list[int], tokenizer: Any = TOKENIZER) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


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


@pytest.mark.parametrize("keep_special", [False, True])
def test_tokens_that_are_whole_characters_give_the_text_of_all_of_them(keep_special: bool) -> None:
    assert joins(TOKENIZER.backend_tokenizer)
    random = Random(0)
    for _ in range(200):
        ids = [random.randrange(len(TOKENIZER)) for _ in range(12)]
        detokenizer = Detokenizer(TOKENIZER, keep_special=keep_special)
        shown = "".join([*map(detokenizer.push, ids), detokenizer.flush()])
        assert shown == TOKENIZER.decode(ids, skip_special_tokens=not keep_special)


def test_only_texts_of_bytes_join() -> None:
    assert not joins(Tokenizer(models.BPE()))


def test_special_tokens_leave_no_text() -> None:
    assert "".join(pieces(TOKENIZER("<user>hi<end>").input_ids)) == "hi"


def test_special_tokens_that_are_asked_for_are_shown_and_no_others() -> None:
    ids = TOKENIZER("a<user>€<end>b<user>").input_ids
    detokenizer = Detokenizer(TOKENIZER, shown=("<user>",))

    assert "".join([*map(detokenizer.push, ids), detokenizer.flush()]) == "a<user>€b<user>"


def test_a_special_token_inside_a_character_breaks_it_no_more_than_decoding_does() -> None:
    euro = TOKENIZER("€").input_ids
    end = TOKENIZER("<end>").input_ids
    detokenizer = Detokenizer(TOKENIZER, shown=("<user>",))

    assert "".join([*map(detokenizer.push, [*euro[:2], *end, *euro[2:]]), detokenizer.flush()]) == "€"


def test_a_stop_string_may_follow_a_special_token_that_is_shown() -> None:
    stream = TextStream(TOKENIZER, ("<user>b",), ("<user>",))

    assert "".join(map(stream.push, TOKENIZER("a<user>a<end><user>b").input_ids)) == "a<user>a"
    assert stream.found == "<user>b"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=30))
def test_any_bytes_join_to_what_the_tokenizer_decodes(ids: list[int]) -> None:
    assert "".join(pieces(ids)) == TOKENIZER.decode(ids, skip_special_tokens=True)


def fast(decoder: Any, vocabulary: list[str], unknown: str | None = None) -> Any:
    """A tokenizer whose ids are the places in the vocabulary; two special tokens and one that is just added follow."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    backend = Tokenizer(
        models.BPE(vocab=ids, merges=[]) if unknown is None else models.WordPiece(ids, unk_token=unknown)
    )
    backend.decoder = decoder
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", clean_up_tokenization_spaces=False)
    tokenizer.add_tokens([AddedToken("<turn>", special=True, lstrip=True, rstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<tool>", lstrip=True, normalized=True)])
    return tokenizer


BLANK = "\u2581"
WORDS = [
    BLANK,
    BLANK * 2,
    BLANK * 3,
    f"{BLANK}hello",
    f"{BLANK}world",
    "a",
    "b",
    ".",
    "é",
    "世",
    "👩",
    "\u200d",
    BROKEN,
]
FALLBACK = [*WORDS, *(f"<0x{byte:02X}>" for byte in (0x0A, 0x61, 0xE4, 0xB8, 0x96, 0xF0, 0x9F, 0x99, 0x82, 0xFF))]
LLAMA = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
TOKENIZERS = {
    "bytes": TOKENIZER,
    "metaspace, always": fast(decoders.Metaspace(prepend_scheme="always"), WORDS),
    "metaspace, first": fast(decoders.Metaspace(prepend_scheme="first"), WORDS),
    "metaspace, never": fast(decoders.Metaspace(prepend_scheme="never"), WORDS),
    "byte fallback": fast(decoders.Sequence(LLAMA), FALLBACK),
    "byte fallback, first blank dropped": fast(decoders.Sequence([*LLAMA, decoders.Strip(" ", 1, 0)]), FALLBACK),
    "pieces of words": fast(
        decoders.WordPiece(cleanup=True), ["he", "##llo", "n't", "'s", ".", "?", "wor", "##ld", "[U]"], "[U]"
    ),
    "ends of words": fast(decoders.BPEDecoder("</w>"), ["he", "llo</w>", "wor", "ld</w>", ".</w>", "a"]),
}


def whole(tokenizer: Any, ids: list[int], special: bool = False) -> str:
    text: str = tokenizer.decode(ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False)
    return text


def letters(text: str) -> str:
    """Without blanks, which tokenizers also put around special tokens."""
    return text.replace(" ", "")


def ordinary(text: str, special: Sequence[str]) -> str:
    """Blanks in the place of special tokens."""
    return re.sub("|".join(map(re.escape, special)), lambda found: " " * len(found.group()), text)


def drawn(data: st.DataObject, tokenizer: Any, most: int = 24) -> list[int]:
    """Special tokens are as likely as all others together."""
    ordinary = st.integers(0, len(tokenizer) - 1)
    special = st.integers(len(tokenizer) - 3, len(tokenizer) - 1)
    return data.draw(st.lists(st.one_of(ordinary, special), max_size=most), label="ids")


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_pieces_join_to_what_any_tokenizer_decodes_from_all_tokens(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = drawn(data, tokenizer)
    assert "".join(pieces(ids, tokenizer)) == whole(tokenizer, ids)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_stop_string_ends_the_text_at_the_token_that_completes_it(name: str, data: st.DataObject) -> None:
    """As if tokens came singly: it stands in the text of all tokens so far, and in none before."""
    tokenizer = TOKENIZERS[name]
    ids = drawn(data, tokenizer)
    special = data.draw(st.booleans(), label="special")
    text = whole(tokenizer, ids, special)
    start = data.draw(st.integers(0, max(len(text) - 1, 0)), label="start")
    stop = text[start : start + data.draw(st.integers(1, 8), label="size")]
    if not stop or BROKEN in stop:
        return
    stream = TextStream(tokenizer, [stop])
    special = any(token in stop for token in special_tokens(tokenizer))
    shown, used = "", 0
    for used, token in enumerate(ids, 1):
        shown += stream.push(token)
        so_far = whole(tokenizer, ids[:used], special).rstrip(BROKEN)
        assert (stream.found == stop) == (stop in so_far)
        if stream.found:
            break
    shown += stream.flush()
    if stream.found is None:
        assert shown == whole(tokenizer, ids)
    elif not special:
        assert shown == so_far[: so_far.index(stop)]
    else:
        assert whole(tokenizer, ids[:used]).startswith(shown)
        if BROKEN not in so_far:  # a special token may break a character in the one text and not in the other
            assert letters(shown) == letters(ordinary(so_far, special_tokens(tokenizer))[: so_far.index(stop)])


def test_the_blank_after_a_special_token_stays() -> None:
    tokenizer = TOKENIZERS["metaspace, always"]
    ids = tokenizer.convert_tokens_to_ids([f"{BLANK}hello", "<end>", f"{BLANK}world"])
    assert pieces(ids, tokenizer) == ["hello", "", " world", ""]


def test_many_special_tokens_in_a_row_leave_no_trace() -> None:
    tokenizer = TOKENIZERS["byte fallback, first blank dropped"]
    ids = tokenizer.convert_tokens_to_ids([f"{BLANK}hello", *["<end>", "<turn>"] * 50, f"{BLANK}world"])
    assert "".join(pieces(ids, tokenizer)) == "hello world"


def test_an_added_token_that_is_not_special_is_text() -> None:
    tokenizer = TOKENIZERS["metaspace, always"]
    ids = tokenizer.convert_tokens_to_ids([f"{BLANK}hello", "<tool>", f"{BLANK}world"])
    assert "".join(pieces(ids, tokenizer)) == whole(tokenizer, ids)
    assert "<tool>" in whole(tokenizer, ids)


def test_a_byte_token_waits_for_its_neighbours_since_a_wrong_one_breaks_them() -> None:
    tokenizer = TOKENIZERS["byte fallback"]
    ids = tokenizer.convert_tokens_to_ids(["a", "<0x0A>", "<0xFF>", "b"])
    assert pieces(ids, tokenizer) == ["a", "", "", f"{BROKEN}{BROKEN}b", ""]


def test_a_stop_string_of_byte_tokens_is_found_with_its_last_one() -> None:
    tokenizer = TOKENIZERS["byte fallback"]
    stream = TextStream(tokenizer, ["a\n"])
    shown = [stream.push(token) for token in tokenizer.convert_tokens_to_ids(["b", "a", "<0x0A>"])]
    assert (shown, stream.found) == (["b", "", ""], "a\n")


@pytest.mark.parametrize(
    ("stop", "shown"), [("<end>", "hello"), ("lo<end>", "hel"), ("<end> wor", "hello"), ("</end>", "hello world")]
)
def test_a_stop_string_may_hold_special_tokens(stop: str, shown: str) -> None:
    tokenizer = TOKENIZERS["metaspace, first"]
    stream = TextStream(tokenizer, [stop, "never"])
    text = ""
    for token in tokenizer.convert_tokens_to_ids([f"{BLANK}hello", "<end>", f"{BLANK}world"]):
        if stream.found is None:
            text += stream.push(token)
    assert text + stream.flush() == shown


def test_special_tokens_are_all_those_that_decoding_skips() -> None:
    assert set(special_tokens(TOKENIZERS["metaspace, first"])) == {"<end>", "<turn>"}
    assert set(special_tokens(TOKENIZER)) == {"<end>", "<user>", "<assistant>", "<system>"}


def test_without_a_stop_string_a_text_is_never_searched() -> None:
    stream = TextStream(TOKENIZER)
    assert [stream.push(token) for token in TOKENIZER("ab").input_ids] == ["a", "b"]
    assert stream.found is None


def test_a_plain_fast_tokenizer_is_decoded_by_its_backend_alone() -> None:
    assert backend_of(TOKENIZER) is TOKENIZER.backend_tokenizer


def test_a_tokenizer_that_decodes_in_its_own_way_is_asked_itself() -> None:
    class Shouting(PreTrainedTokenizerFast):
        def _decode(self, *args: Any, **options: Any) -> str:
            return super()._decode(*args, **options).upper()

    tokenizer = Shouting(tokenizer_object=TOKENIZER.backend_tokenizer, eos_token="<end>")
    assert backend_of(tokenizer) is None
    assert "".join(pieces(TOKENIZER("abc").input_ids, tokenizer)) == "ABC"


def test_what_is_no_fast_tokenizer_has_no_backend() -> None:
    assert backend_of(object()) is None

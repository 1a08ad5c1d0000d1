from __future__ import annotations

import importlib.util
import json
import random
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parent.parent / "benchmarks" / "layerskip" / "grammar.py"


@pytest.fixture(scope="module")
def grammar() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layerskip_grammar", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_an_utterance_is_its_frame_without_brackets(grammar: ModuleType) -> None:
    annotated = "remind me to [IN:CREATE_REMINDER [SL:TODO call mom ] [SL:DATE_TIME at 5 pm tomorrow ] ]"

    assert grammar.spoken(annotated) == "remind me to call mom at 5 pm tomorrow"
    assert grammar.parse(annotated) == "[IN:CREATE_REMINDER [SL:TODO call mom ] [SL:DATE_TIME at 5 pm tomorrow ] ]"


def test_words_outside_of_slots_are_not_in_the_parse(grammar: ModuleType) -> None:
    annotated = "please [IN:A do [SL:B x [IN:C go [SL:D y ] there ] ] now ] ok"

    assert grammar.spoken(annotated) == "please do x go y there now ok"
    assert grammar.parse(annotated) == "[IN:A [SL:B x [IN:C [SL:D y ] ] ] ]"


def test_every_frame_closes_what_it_opens_and_names_known_parts(grammar: ModuleType) -> None:
    for frame in (frame for frames in grammar.FRAMES.values() for frame in frames):
        text = grammar.filled(frame, random.Random(0))
        parsed = grammar.parse(text)
        assert text.count("[") == text.count("]") == parsed.count("[") == parsed.count("]")
        assert parsed.startswith("[IN:")
        assert "{" not in text


def test_every_word_list_and_phrase_is_used(grammar: ModuleType) -> None:
    texts = [text for frames in grammar.FRAMES.values() for text in frames]
    texts += [text for phrases in grammar.PHRASES.values() for text in phrases]
    used = {name for text in texts for name in re.findall(r"\{(\w+)\}", text)}

    assert used == set(grammar.WORDS) | set(grammar.PHRASES)


def test_files_hold_different_utterances_of_every_domain(
    grammar: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["grammar.py", str(tmp_path / "made")])
    grammar.main()

    train, test = read(tmp_path / "made" / "train.jsonl"), read(tmp_path / "made" / "test.jsonl")
    asked = [line["prompt"] for line in train + test]
    intents = {re.match(r"\[IN:(\w+)", line["answer"]).group(1) for line in test}  # type: ignore[union-attr]
    assert (len(train), len(test)) == (4000, 200)
    assert len(set(asked)) == 4200
    assert {"CREATE_ALARM", "CREATE_REMINDER", "GET_WEATHER", "CREATE_TIMER", "PLAY_MUSIC", "SEND_MESSAGE"} <= intents
    assert {"GET_DIRECTIONS", "GET_EVENT"} <= intents
    assert any(line["answer"].count("[IN:") > 1 for line in test)


def test_the_seed_decides_everything(grammar: ModuleType) -> None:
    assert grammar.pairs(50, 1) == grammar.pairs(50, 1) != grammar.pairs(50, 2)

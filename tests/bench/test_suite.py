import json
from dataclasses import replace
from pathlib import Path

import pytest

import forerun
from forerun.bench.suite import POOLED, SMALL, Item, fingerprint, read_suite, turns_of
from forerun.engine.prompts.questions import Question
from forerun.engine.request import RequestOptions
from forerun.errors import UnsupportedOption
from forerun.testing import save_tiny

TALK = Item("7", "agentic", Question(("count 1 2 3", "and 4 5", "stop")))
SINGLE = Item("8", "open", Question(("what 9 9",)))
OPTIONS: RequestOptions = {"max_new_tokens": 6}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> forerun.Engine:
    return forerun.load(save_tiny(tmp_path_factory.mktemp("models") / "tiny"))


def write(path: Path, *categories: str) -> Path:
    lines = [
        json.dumps({"question_id": 100 + number, "category": category, "turns": [f"ask {number}", "and then?"]})
        for number, category in enumerate(categories)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_items_come_with_their_id_category_and_question(tmp_path: Path) -> None:
    (item,) = read_suite(write(tmp_path / "s.jsonl", "rag"))
    assert (item.id, item.kind, item.category) == ("100", "rag", "rag")
    assert item.question.turns[0] == "ask 0"


def test_the_eight_small_categories_are_pooled(tmp_path: Path) -> None:
    items = read_suite(write(tmp_path / "s.jsonl", *sorted(SMALL), "qa"))
    assert len(SMALL) == 8
    assert [item.category for item in items] == [POOLED] * 8 + ["qa"]


def test_at_most_so_many_prompts_of_a_category_are_taken(tmp_path: Path) -> None:
    items = read_suite(write(tmp_path / "s.jsonl", "qa", "qa", "qa", "rag"), per_category=2)
    assert [item.id for item in items] == ["100", "101", "103"]


def test_a_pooled_category_gives_its_small_ones_in_turn(tmp_path: Path) -> None:
    suite = write(tmp_path / "s.jsonl", "writing", "writing", "writing", "math", "coding")
    assert [item.kind for item in read_suite(suite, per_category=4)] == ["writing", "math", "coding", "writing"]


def test_only_the_wanted_categories_are_taken(tmp_path: Path) -> None:
    suite = write(tmp_path / "s.jsonl", "qa", "writing", "rag")
    assert [item.kind for item in read_suite(suite, categories=["mt_bench", "rag"])] == ["writing", "rag"]


def test_an_unknown_category_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no category 'poetry'; it has: qa, mt_bench"):
        read_suite(write(tmp_path / "s.jsonl", "qa", "stem"), categories=["poetry"])


def test_less_than_one_prompt_a_category_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        read_suite(write(tmp_path / "s.jsonl", "qa"), per_category=0)


def test_prompts_without_id_and_category_make_a_suite_of_one_category(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"prompt": "one"}\n\n{"prompt": "two"}\n')
    items = read_suite(tmp_path / "s.jsonl")
    assert [(item.id, item.category, item.question.turns) for item in items] == [
        ("1", "all", ("one",)),
        ("2", "all", ("two",)),
    ]


def test_a_line_at_fault_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"prompt": "one"}\n{"question_id": 2}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_suite(tmp_path / "s.jsonl")


def test_a_suite_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing\.jsonl"):
        read_suite(tmp_path / "nothing.jsonl")


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    one, same, other = (write(tmp_path / name, kind) for name, kind in (("a", "qa"), ("b", "qa"), ("c", "rag")))
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    assert len(fingerprint(one)) == 16


def test_labels_stay_with_their_questions_whatever_stands_in_the_text(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    entries = ({"question_id": n, "category": f"c{n}", "turns": [f"a\u2028b\x85{n}"]} for n in (7, 8))
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(json.dumps(one, ensure_ascii=False) for one in entries).encode())

    items = read_suite(file)
    assert [(one.id, one.category, one.question.turns[0]) for one in items] == [
        ("7", "c7", "a\u2028b\x857"),
        ("8", "c8", "a\u2028b\x858"),
    ]


def test_each_turn_is_a_prompt_with_a_number_and_its_own_category(engine: forerun.Engine) -> None:
    items, prompts = turns_of(engine, [TALK, SINGLE], OPTIONS, chat=True)
    assert [item.id for item in items] == ["7.1", "7.2", "7.3", "8"]
    assert [item.category for item in items] == ["agentic", "agentic", "agentic", "open"]
    assert len(prompts) == 4


def test_a_later_turn_follows_what_the_model_itself_said(engine: forerun.Engine) -> None:
    _, (first, second, third) = turns_of(engine, [TALK], OPTIONS, chat=True)
    answers: list[str] = []
    for prompt, turns in ((first, 1), (second, 2), (third, 3)):
        assert prompt == replace(TALK.question, turns=TALK.question.turns[:turns]).ids(answers, True, engine.tokenizer)
        answer = engine.generate(prompt, speculate=False, **OPTIONS).text
        assert answer
        answers.append(answer)
    assert answers[0] in engine.tokenizer.decode(second)


def test_the_answers_between_are_plain_and_nothing_of_them_is_kept(engine: forerun.Engine) -> None:
    drafting = engine.using("suffix")
    asked = turns_of(drafting, [TALK], OPTIONS, chat=True)
    assert asked == turns_of(engine, [TALK], OPTIONS, chat=True)
    first = drafting.generate(asked[1][0], **OPTIONS).stats
    assert first.drafted == engine.using("suffix").generate(asked[1][0], **OPTIONS).stats.drafted


def test_several_turns_without_a_chat_template_are_refused(engine: forerun.Engine) -> None:
    with pytest.raises(UnsupportedOption, match="need a chat template"):
        turns_of(engine, [TALK], OPTIONS, chat=False)

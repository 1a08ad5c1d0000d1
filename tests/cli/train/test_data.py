"""forerun train prompts and answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from forerun.testing import END, save_tiny, tiny_tokenizer
from forerun.train.data.states import StateStore

from ..conftest import Ran

Call = Callable[..., Ran]


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that says a few letters and ends its turn."""
    place = save_tiny(tmp_path_factory.mktemp("models") / "chatty", num_hidden_layers=2)
    model = AutoModelForCausalLM.from_pretrained(place)
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight.fill_(1)
        model.lm_head.weight.fill_(-1)
        model.lm_head.weight[[*tiny_tokenizer()("abcde ").input_ids, END]] = 0
    model.save_pretrained(place)
    return str(place)


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"say {number}"}) + "\n" for number in range(4)))
    return file


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_prompts_are_sampled_and_more_of_them_later(forerun: Call, chatty: str, tmp_path: Path) -> None:
    file, given = tmp_path / "p.jsonl", ("--max-tokens", 16, "--top-k", 8, "--batch", 4)
    ran = forerun("train", "prompts", chatty, "-o", file, "--count", 3, *given)
    assert (ran.status, ran.said) == (0, "")
    assert ran.out.startswith("prompts 3, seconds ")
    first = lines(file)
    told = json.loads(forerun("train", "prompts", chatty, "-o", file, "--count", 5, *given, "--json").out)
    assert (told["prompts"], told["file"]) == (5, str(file))
    assert lines(file)[:3] == first
    assert len(lines(file)) == 5


def test_a_benchmarks_prompts_do_not_come_up(forerun: Call, chatty: str, tmp_path: Path) -> None:
    given = ("--max-tokens", 16, "--top-k", 8, "--batch", 4, "--count", 4)
    forerun("train", "prompts", chatty, "-o", tmp_path / "p.jsonl", *given)
    ran = forerun("train", "prompts", chatty, "-o", tmp_path / "q.jsonl", *given, "--exclude", tmp_path / "p.jsonl")
    assert ran.status == 0
    assert not {one["prompt"] for one in lines(tmp_path / "p.jsonl")} & {
        one["prompt"] for one in lines(tmp_path / "q.jsonl")
    }


def test_prompts_begin_as_a_file_of_openings_says(forerun: Call, chatty: str, tmp_path: Path) -> None:
    (tmp_path / "openings.txt").write_text("Why \nXY\n")
    given = ("--max-tokens", 16, "--top-k", 8, "--batch", 4, "--count", 6, "--openings", tmp_path / "openings.txt")
    ran = forerun("train", "prompts", chatty, "-o", tmp_path / "p.jsonl", *given)
    assert (ran.status, ran.said) == (0, "")
    for one in lines(tmp_path / "p.jsonl"):
        assert str(one["prompt"]).startswith(("Why", "XY")[int(str(one["attempt"])) % 2])


@pytest.mark.parametrize(("text", "sentence"), [("\n", "holds no opening"), (None, "can't read the openings file")])
def test_openings_that_can_not_be_had_are_refused_before_the_model_is_loaded(
    forerun: Call, chatty: str, tmp_path: Path, text: str | None, sentence: str
) -> None:
    if text is not None:
        (tmp_path / "o.txt").write_text(text)
    ran = forerun("train", "prompts", chatty, "-o", tmp_path / "p.jsonl", "--openings", tmp_path / "o.txt")
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.err
    assert "loading" not in ran.err
    assert not (tmp_path / "p.jsonl").exists()


def test_answers_are_written_and_counted(forerun: Call, tiny: str, asked: Path, tmp_path: Path) -> None:
    given = ("train", "answers", tiny, asked, "-o", tmp_path / "a.jsonl", "--max-new-tokens", 5, "--json")
    ran = forerun(*given)
    assert ran.status == 0
    told = json.loads(ran.out)
    assert (told["answers"], told["new_answers"]) == (4, 4)
    assert told["new_tokens"] == sum(len(one["answer_ids"]) for one in lines(tmp_path / "a.jsonl"))  # type: ignore[arg-type]
    assert "4 prompts, 0 of them answered before" in ran.err
    again = forerun(*given)
    assert (json.loads(again.out)["new_answers"], json.loads(again.out)["tokens_per_second"]) == (0, None)
    assert "4 prompts, 4 of them answered before" in again.err


def test_states_are_kept_beside_answers(forerun: Call, tiny: str, asked: Path, tmp_path: Path) -> None:
    ran = forerun(
        *("train", "answers", tiny, asked, "-o", tmp_path / "a.jsonl", "--max-new-tokens", 5),
        *("--states", tmp_path / "states", "--layers", "2,4"),
    )
    assert ran.status == 0
    head = lines(tmp_path / "states" / "index.jsonl")[0]
    store = StateStore(tmp_path / "states", (2, 4), 32, str(head["model"]))
    for one in lines(tmp_path / "a.jsonl"):
        ids = [*one["prompt_ids"], *one["answer_ids"]][:-1]  # type: ignore[misc]
        assert store.read(ids, 4).shape == (len(ids), 32)
    store.close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--states", "somewhere"), "--states and --layers go together"),
        (("--layers", "2"), "--states and --layers go together"),
        (("--states", "somewhere", "--layers", "5"), "--layers must be in 0..4 for this model, got 5"),
        (("--states", "somewhere", "--layers", "two"), "--layers takes whole numbers with commas, got 'two'"),
        (("--max-new-tokens", "0"), "max_new_tokens must be at least 1, got 0"),
        (("--exclude", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--max-prompt", "3"), "holds no prompt of at most 3 tokens"),
        (("--sates", "x"), "unknown option --sates; known: --output"),
    ],
)
def test_answers_that_can_not_be_had_are_refused(
    forerun: Call,
    tiny: str,
    asked: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = forerun("train", "answers", tiny, asked, "-o", tmp_path / "a.jsonl", *given)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.said
    assert not (tmp_path / "somewhere").exists()


def test_prompts_need_a_chat_template_and_a_line_must_be_json(forerun: Call, tmp_path: Path, tiny: str) -> None:
    bare = save_tiny(tmp_path / "bare", chat=False)
    ran = forerun("train", "prompts", bare, "-o", tmp_path / "p.jsonl")
    assert (ran.status, ran.out) == (2, "")
    assert "this model has none; bring a prompts file" in ran.said
    (tmp_path / "broken.jsonl").write_text('{"prompt": "a"}\n{oops\n')
    ran = forerun("train", "answers", tiny, tmp_path / "broken.jsonl", "-o", tmp_path / "a.jsonl")
    assert ran.status == 2
    assert "broken.jsonl, line 2" in ran.said

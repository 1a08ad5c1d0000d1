from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import forerun
from forerun import Engine
from forerun.core.learned import Learning
from forerun.drafters import auto
from forerun.drafters.cascade import Cascade
from forerun.models.files import known_drafts
from forerun.models.files.ngrams import KIND, write_ngrams
from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.testing import save_tiny, tiny_model
from forerun.train.data.examples import Example
from forerun.train.ngrams.table import build_table

from .carving import save_carvable

LOOP = [5, 6, 7, 8] * 6


@dataclass
class Facts:
    its: bool

    def near(self, target: Any) -> bool:
        return not self.its


def known(name: str, directory: Path, its: bool = True, nbytes: int = 0) -> Any:
    return SimpleNamespace(name=name, directory=directory, facts=Facts(its), nbytes=nbytes)


@pytest.fixture(scope="module")
def plain() -> Engine:
    return forerun.load(tiny_model("llama"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft model of one layer."""
    return save_tiny(tmp_path_factory.mktemp("small"), "llama", seed=7, num_hidden_layers=1)


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(auto, "known_drafts", lambda identity: found)
    return found


def built(engine: Engine, **options: Any) -> tuple[tuple[str, ...], Learning[Any, Any]]:
    """The names of its drafters, and the factory."""
    made = engine.using("auto", drafter_options=options).drafter
    assert isinstance(made, Learning)
    drafter = made(engine._parts.target.acquire())
    return drafter._names if isinstance(drafter, Cascade) else (drafter.drafted_by,), made


def test_without_a_trained_draft_it_copies_and_says_so(plain: Engine, drafts: list[Any]) -> None:
    names, made = built(plain)
    assert names == ("suffix",)
    assert made.choice == "auto: suffix; no trained draft is known for this model"
    assert made.keep_as == "suffix"


def test_a_draft_that_was_trained_for_the_model_is_the_second_choice(
    plain: Engine, drafts: list[Any], small: Path
) -> None:
    drafts += [known("best", small), known("other", small)]
    names, made = built(plain)
    assert names == ("suffix", "draft_model")
    assert made.choice == "auto: suffix, then draft_model; the draft best was trained for this model"
    assert made.keep_as == "suffix draft_model best"
    assert any(name.startswith("suffix") for name in made.learned)


def test_a_draft_for_other_weights_of_its_kind_says_so(plain: Engine, drafts: list[Any], small: Path) -> None:
    drafts.append(known("near", small, its=False))
    assert built(plain)[1].choice.endswith("the draft near was trained for a model of this shape and tokenizer")


def test_a_draft_that_can_not_be_opened_is_left_out_and_told_of(
    plain: Engine, drafts: list[Any], small: Path, tmp_path: Path
) -> None:
    drafts.append(known("broken", tmp_path / "nothing"))
    _, made = built(plain)
    assert made.choice.startswith("auto: suffix; the draft broken was left out: ")
    drafts.append(known("good", small))
    assert "the draft good was trained for this model; the draft broken was left out" in built(plain)[1].choice


def test_a_draft_that_is_large_beside_the_model_is_left_out(drafts: list[Any], small: Path, tmp_path: Path) -> None:
    drafts.append(known("large", small, nbytes=10**6))
    lean = forerun.load(str(save_tiny(tmp_path / "target", "llama")), runner="lean")
    assert lean.runner.step_nbytes is not None
    assert built(lean)[1].choice.startswith("auto: suffix; the draft large was left out: 1.0 MB are much beside")
    drafts[:] = [known("small", small, nbytes=int(lean.runner.step_nbytes * auto.LARGEST))]
    assert built(lean)[0] == ("suffix", "draft_model")


def test_it_can_be_told_to_use_no_trained_draft_and_to_keep_nothing(
    plain: Engine, drafts: list[Any], small: Path
) -> None:
    drafts.append(known("best", small))
    names, made = built(plain, trained=False, keep=False)
    assert names == ("suffix",)
    assert made.choice == "auto: suffix; no trained draft is wanted"
    assert made.keep_as == ""


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 3}])
def test_texts_are_those_of_plain_decoding(plain: Engine, drafts: list[Any], options: Any) -> None:
    prompts = [LOOP, [1], [9] * 20]
    wanted = [result.ids for result in plain.generate(prompts, max_new_tokens=24, **options)]
    engine = plain.using("auto")
    for _ in range(2):
        results = engine.generate(prompts, max_new_tokens=24, **options)
        assert [result.ids for result in results] == wanted


def test_greedy_texts_are_those_of_plain_decoding_with_a_draft_too(
    plain: Engine, drafts: list[Any], small: Path
) -> None:
    drafts.append(known("best", small))
    prompts = [LOOP, [1], [9] * 20]
    wanted = [result.ids for result in plain.generate(prompts, max_new_tokens=24)]
    results = plain.using("auto", "fixed", policy_options={"k": 3}).generate(prompts, max_new_tokens=24)
    assert [result.ids for result in results] == wanted
    assert sum(result.stats.drafted for result in results) > 0


def test_it_goes_on_while_it_is_likely_unless_told_otherwise(plain: Engine, drafts: list[Any]) -> None:
    assert type(plain.using("auto")._policy()).__name__ == "CostAware"
    assert type(plain.using("auto", "fixed")._policy()).__name__ == "Fixed"
    assert type(plain.using("lookup")._policy()).__name__ == "Fixed"


def test_an_answer_says_what_was_chosen(plain: Engine, drafts: list[Any]) -> None:
    assert plain.using("auto").generate([1, 2, 3], max_new_tokens=2).choice.startswith("auto: suffix; no trained draft")
    assert plain.generate([1, 2, 3], max_new_tokens=2).choice == ""


def test_what_it_learnt_is_kept_for_the_next_start(
    plain: Engine, drafts: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    monkeypatch.setenv("FORERUN_LEARNED", "on")
    first = plain.using("auto")
    assert first.choice.endswith("learns as it goes")
    wanted = [first.generate(LOOP, max_new_tokens=24).ids for _ in range(3)]
    del first
    (file,) = (tmp_path / "learned").iterdir()
    assert "ids" not in file.read_text()
    second = plain.using("auto")
    assert second.choice.endswith("goes on from what it learnt before")
    assert [second.generate(LOOP, max_new_tokens=24).ids for _ in range(3)] == wanted


@pytest.mark.parametrize("switch", ["environment", "option"])
def test_nothing_is_kept_where_that_is_switched_off(
    plain: Engine, drafts: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    monkeypatch.setenv("FORERUN_LEARNED", "off" if switch == "environment" else "on")
    engine = plain.using("auto", drafter_options={"keep": switch == "environment"})
    engine.generate(LOOP, max_new_tokens=8)
    del engine
    assert list(tmp_path.iterdir()) == []


def test_a_kept_file_that_is_damaged_changes_no_text(
    plain: Engine,
    drafts: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    monkeypatch.setenv("FORERUN_LEARNED", "on")
    plain.using("auto").generate(LOOP, max_new_tokens=8)
    (file,) = (tmp_path / "learned").iterdir()
    file.write_text(file.read_text()[:-40])
    engine = plain.using("auto")
    assert "is damaged" in capsys.readouterr().err
    assert engine.choice.endswith("learns as it goes")
    assert engine.generate(LOOP, max_new_tokens=24).ids == plain.generate(LOOP, max_new_tokens=24).ids


@pytest.fixture
def table(plain: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A known table of what the model writes after a few prompts."""
    prompts = [[number % 7 + 1, 6, number % 3 + 1] for number in range(12)]
    texts = plain.using("none").generate(prompts, max_new_tokens=24)
    answers = [Example((*prompt, *text.ids), 3) for prompt, text in zip(prompts, texts, strict=True)]
    counted, _ = build_table(answers, plain.identity, held_out=0.5)
    write_ngrams(replace(counted, likely=torch.full_like(counted.likely, 200)), tmp_path / "own")
    monkeypatch.setenv(known_drafts.SWITCH, str(tmp_path))
    return tmp_path / "own"


def test_a_table_of_the_models_own_answers_is_asked_and_leaves_texts_as_they_are(
    plain: Engine, drafts: list[Any], table: Path
) -> None:
    names, made = built(plain)
    assert names == ("suffix",)
    assert made.choice == "auto: suffix with the n-grams of own; no trained draft is known for this model"
    prompts = [[3, 6, 1], [1], [9] * 20]
    wanted = [result.ids for result in plain.using("none").generate(prompts, max_new_tokens=24)]
    results = plain.using("auto", "fixed", policy_options={"k": 3}).generate(prompts, max_new_tokens=24)
    assert [result.ids for result in results] == wanted
    assert (
        results[0].stats.drafted > plain.using("suffix", "fixed").generate([3, 6, 1], max_new_tokens=24).stats.drafted
    )


def test_a_table_of_another_model_is_not_asked(drafts: list[Any], table: Path) -> None:
    other = forerun.load(tiny_model("llama", seed=5))
    assert built(other)[1].choice.startswith("auto: suffix; ")


def test_a_table_that_cannot_be_read_is_told(plain: Engine, drafts: list[Any], table: Path) -> None:
    (table / KIND.weights_file).write_bytes(b"")
    choice = built(plain)[1].choice
    assert choice.startswith("auto: suffix; no trained draft is known for this model; a table was left out: ")


def test_beside_a_table_a_draft_must_be_smaller(
    drafts: list[Any], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean = forerun.load(str(save_tiny(tmp_path / "target", "llama")), runner="lean")
    assert lean.runner.step_nbytes is not None
    answers = [Example((1, 2, 3, number), 1) for number in range(4, 40)]
    write_ngrams(build_table(answers, lean.identity, held_out=0.5)[0], tmp_path / "own")
    drafts[:] = [known("small", small, nbytes=int(lean.runner.step_nbytes * auto.LARGEST))]
    assert built(lean)[0] == ("suffix", "draft_model")
    monkeypatch.setenv(known_drafts.SWITCH, str(tmp_path))
    assert built(lean)[0] == ("suffix",)
    drafts[:] = [known("small", small, nbytes=int(lean.runner.step_nbytes * auto.LARGEST_BESIDE_TABLE))]
    assert built(lean)[0] == ("suffix", "draft_model")


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A model with native kernels, in float32."""
    if not processor_levels():
        pytest.skip("forerun was installed without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1])
        return forerun.load(save_carvable(tmp_path_factory.mktemp("floats") / "target"), drafter="none")


def test_a_model_whose_weights_are_floats_drafts_in_small_weights_of_its_own(floats: Engine, drafts: list[Any]) -> None:
    names, made = built(floats)
    assert names == ("suffix", "guessed")
    assert made.choice == (
        "auto: suffix, then guessed; no trained draft is known for this model; the model itself drafts in int4 weights"
    )
    assert made.keep_as == "suffix guessed"
    assert {"suffix acceptance", "guessed suffix acceptance"} <= set(made.learned)


def test_it_can_be_told_to_carve_no_draft(floats: Engine, drafts: list[Any]) -> None:
    names, made = built(floats, carved=False)
    assert names == ("suffix",)
    assert "int4" not in made.choice


def test_no_draft_is_carved_from_a_model_that_a_forward_reads_too_much_of(
    floats: Engine, drafts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "LARGEST_CARVED", floats.runner.step_nbytes - 1)  # type: ignore[operator]
    assert built(floats)[0] == ("suffix",)
    monkeypatch.setattr(auto, "LARGEST_CARVED", floats.runner.step_nbytes)
    assert built(floats)[0] == ("suffix", "guessed")


def test_no_draft_is_carved_from_weights_that_are_small_already(
    floats: Engine, drafts: list[Any], tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1])
        codes = forerun.load(save_carvable(tmp_path / "target"), weights="int4")
    assert built(codes)[0] == ("suffix",)


def test_a_draft_that_can_not_be_carved_is_left_out_and_told_of(
    floats: Engine, drafts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "SMALL", "int3")
    names, made = built(floats)
    assert names == ("suffix",)
    assert "; a draft in int3 weights was left out: " in made.choice


def test_a_trained_draft_stays_in_its_place(floats: Engine, drafts: list[Any], small: Path) -> None:
    drafts.append(known("best", small))
    names, made = built(floats)
    assert names == ("suffix", "draft_model", "guessed")
    assert made.keep_as == "suffix draft_model guessed best"


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 3}])
def test_texts_are_those_of_plain_decoding_with_carved_weights_too(
    floats: Engine, drafts: list[Any], options: Any
) -> None:
    prompts = [LOOP, [1], [9] * 20]
    wanted = [result.ids for result in floats.generate(prompts, max_new_tokens=24, **options)]
    for policy in ("cost", "fixed", "governor"):
        engine = floats.using("auto", policy)
        results = [
            *engine.generate(prompts, max_new_tokens=24, **options),
            *(engine.generate(prompt, max_new_tokens=24, **options) for prompt in prompts),
        ]
        assert [result.ids for result in results] == [*wanted, *wanted]

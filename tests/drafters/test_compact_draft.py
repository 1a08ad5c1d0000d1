"""A compact draft drafts by name or path for its own target, whatever form that one is held in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun import Engine, load
from forerun.errors import InvalidModelFile, ModelNotFound, UnsupportedOption
from forerun.models.files import known_drafts
from forerun.models.files.compact_draft import FILE
from forerun.testing import save_tiny, save_tiny_draft, tiny_model, tiny_tokenizer

CHANGES = {"intermediate_size": 64, "vocab_size": 260}
PROMPT = "hello there"
NEW = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a draft of all its layers and one of two, and another model."""
    folder = tmp_path_factory.mktemp("compact")
    save_tiny(folder / "target", **CHANGES)
    save_tiny(folder / "tuned", seed=1, **CHANGES)
    save_tiny(folder / "other", num_hidden_layers=2, **CHANGES)
    model = tiny_model("llama", **CHANGES)
    for name, layers in (("whole", (0, 1, 2, 3)), ("two", (0, 3))):
        save_tiny_draft(folder / "drafts" / name, model, layers, weights="int8", tokenizer=tiny_tokenizer())
    return folder


@pytest.fixture(autouse=True)
def own_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(known_drafts.SWITCH, str(folder / "drafts"))


def drafting(folder: Path, draft: Any = "whole", target: str = "target", **given: Any) -> Engine:
    options = {name: given.pop(name) for name in ("vocabulary", "weights", "activations") if name in given}
    place = {"weights": given.pop("form", ""), **given}
    return load(
        folder / target,
        drafter="draft_model",
        drafter_options={"model": draft, **options},
        policy_options={"k": 4},
        **place,
    )


@pytest.mark.parametrize("form", [{"dtype": "float32"}, {"dtype": "bfloat16"}, {"form": "int8"}, {"form": "int4"}])
@pytest.mark.parametrize("draft", ["whole", "two"])
def test_every_form_of_the_target_finds_it_and_writes_its_plain_text(
    folder: Path, form: dict[str, Any], draft: str
) -> None:
    engine = drafting(folder, draft, **form)
    result = engine.generate(PROMPT, max_new_tokens=NEW)
    plain = engine.generate(PROMPT, max_new_tokens=NEW, speculate=False)
    assert result.stats.drafted > 0
    if engine.runner.same_bits or form == {"dtype": "float32"}:
        assert result.ids == plain.ids


def test_a_draft_of_every_layer_is_nearly_always_right(folder: Path) -> None:
    engine = drafting(folder, dtype="float32")
    result = engine.generate(PROMPT, max_new_tokens=64)
    # its 4-bit weights flip near ties of a random model, and torch's kernels hold rows in bfloat16 besides
    assert result.stats.acceptance > (0.7 if engine.runner.same_bits else 0.6)


@pytest.mark.parametrize("given", [{"vocabulary": 50}, {"vocabulary": 0}, {"vocabulary": 260}])
def test_it_drafts_among_as_many_tokens_as_are_asked_for(folder: Path, given: dict[str, int]) -> None:
    engine = drafting(folder, dtype="float32", **given)
    result = engine.generate(PROMPT, max_new_tokens=NEW)
    assert result.ids == engine.generate(PROMPT, max_new_tokens=NEW, speculate=False).ids
    assert ("50 tokens" in engine.pair.drafter) == (given == {"vocabulary": 50})


def test_it_drafts_on_transformers_modules_too(folder: Path) -> None:
    model = tiny_model("llama", **CHANGES)
    engine = load(model, tiny_tokenizer(), "draft_model", drafter_options={"model": "whole"})
    result = engine.generate(PROMPT, max_new_tokens=NEW)
    assert result.ids == engine.generate(PROMPT, max_new_tokens=NEW, speculate=False).ids
    assert result.stats.acceptance > 0.5
    assert engine.runners[0].name != engine.runners[1].name == "the draft whole"


def test_a_name_a_path_and_its_text_mean_the_same(folder: Path) -> None:
    pairs = {
        drafting(folder, one).pair.drafter for one in ("two", folder / "drafts" / "two", str(folder / "drafts" / "two"))
    }
    assert len(pairs) == 1
    assert drafting(folder, "whole").pair.drafter not in pairs


def test_other_weights_of_its_targets_shape_and_tokenizer_are_served(folder: Path) -> None:
    engine = drafting(folder, "whole", "tuned", dtype="float32")
    result = engine.generate(PROMPT, max_new_tokens=NEW)
    assert result.ids == engine.generate(PROMPT, max_new_tokens=NEW, speculate=False).ids


def test_another_model_is_refused(folder: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"the draft whole was trained for another model, the tiny model: that one's num_layers is 4 here and 2 there",
    ):
        drafting(folder, "whole", "other")


def test_weights_are_its_own(folder: Path) -> None:
    with pytest.raises(UnsupportedOption, match="the draft whole holds weights of its own, int8; leave weights out"):
        drafting(folder, weights="int4")


def test_activations_are_those_that_are_asked_for(folder: Path) -> None:
    engine = drafting(folder, form="int8")
    if not engine.runner.kernels.startswith("native"):
        pytest.skip("forerun was installed without a compiler")
    assert engine.runners[-1].activations == 16
    assert "activations 8" in drafting(folder, form="int8", activations=8).pair.drafter


def test_a_damaged_draft_is_refused(folder: Path, tmp_path: Path) -> None:
    save_tiny_draft(tmp_path / "cut", tiny_model("llama", **CHANGES), (0,), tokenizer=tiny_tokenizer())
    file = tmp_path / "cut" / FILE
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InvalidModelFile, match="cut holds no compact draft that can be read"):
        drafting(folder, tmp_path / "cut")


def test_a_path_without_a_draft_is_no_model(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=f"{tmp_path / 'none'}"):
        drafting(folder, tmp_path / "none")


def test_it_learns_nothing_between_requests(folder: Path) -> None:
    engine = drafting(folder, "two", dtype="float32")
    first, again = (engine.generate(PROMPT, max_new_tokens=NEW) for _ in range(2))
    assert first.ids == again.ids
    assert first.stats.accepted == again.stats.accepted

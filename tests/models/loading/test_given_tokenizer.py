"""A tokenizer may be given in every form in which people have one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer

from forerun import load
from forerun.errors import ForerunError, ModelNotFound
from forerun.models.loading.given_tokenizer import as_tokenizer
from forerun.testing import tiny_model, tiny_tokenizer

OWN = tiny_tokenizer()
MODEL = tiny_model("llama", vocab_size=len(OWN))
TEXT = "to be or not"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    OWN.save_pretrained(folder)
    return folder


def forms(saved: Path) -> dict[str, Any]:
    return {
        "loaded": OWN,
        "path": saved,
        "text": str(saved),
        "file": saved / "tokenizer.json",
        "bare": OWN.backend_tokenizer,
        "processor": SimpleNamespace(tokenizer=OWN, decode=OWN.decode),
    }


@pytest.mark.parametrize("form", ["loaded", "path", "text", "file", "bare", "processor"])
def test_an_engine_takes_it(form: str, saved: Path) -> None:
    wanted = load(MODEL, OWN).generate(TEXT, max_new_tokens=4, ignore_eos=True)
    found = load(MODEL, forms(saved)[form]).generate(TEXT, max_new_tokens=4, ignore_eos=True)

    assert (found.ids, found.text, found.prompt_tokens) == (wanted.ids, wanted.text, wanted.prompt_tokens)


def test_a_loaded_one_is_kept_as_it_is() -> None:
    assert as_tokenizer(OWN) is OWN
    assert as_tokenizer(None) is None


def test_a_bare_one_leaves_out_special_tokens_as_before() -> None:
    bare = Tokenizer.from_str(OWN.backend_tokenizer.to_str())
    made: Any = as_tokenizer(bare)

    assert made.decode([*OWN("a").input_ids, OWN.eos_token_id], skip_special_tokens=True) == "a"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (3, "a tokenizer is one of transformers or of tokenizers, a path or a name; int has no __call__|decode"),
        ({"a": 1}, "dict has no"),
        (str.split, "method_descriptor has no decode"),
        (False, "bool has no"),
        (MODEL, "LlamaForCausalLM has no decode"),
    ],
)
def test_what_is_no_tokenizer_is_refused_by_its_type(given: Any, sentence: str) -> None:
    with pytest.raises(ForerunError, match=sentence):
        load(MODEL, given)


def test_a_path_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no tokenizer at .*missing: there is no such file or directory"):
        as_tokenizer(tmp_path / "missing")
    with pytest.raises(ModelNotFound, match=r"holds no tokenizer: it has none of tokenizer\.json, "):
        as_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": ')
    with pytest.raises(ForerunError, match=r"no tokenizer can be read from .*tokenizer\.json: "):
        as_tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(ForerunError, match="is corrupt or truncated, download it again"):
        as_tokenizer(tmp_path)
    (tmp_path / "notes.txt").write_text("no tokenizer at all")
    with pytest.raises(ForerunError, match=r"notes\.txt"):
        as_tokenizer(tmp_path / "notes.txt")


def test_a_name_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ForerunError, match="no tokenizer can be read from nobody/nothing-at-all: "):
        as_tokenizer("nobody/nothing-at-all")

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.engines.vllm.settings import chosen_system, settings_of
from forerun.errors import UnsupportedOption

from .fake import EOS, config

ROOT = Path(forerun.__file__).parent
IDENTITY = {"family": "llama", "num_layers": 4, "hidden_size": 32, "vocab_size": 97, "weights": "ab", "vocabulary": ""}
SHAPE = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 32, "vocab_size": 97}


def tuned(folder: Path) -> Path:
    file = folder / "system.json"
    target = {"model": "smollm2", "identity": IDENTITY}
    method = {"drafter": {"name": "lookup", "max_ngram": 4}, "policy": {"name": "cost"}}
    file.write_text(json.dumps({"forerun_system": 1, "target": target, **method}))
    return file


def test_limits_come_from_vllms_own_configuration() -> None:
    settings = settings_of(config(longest=5, max_length=300, requests=7))

    assert (settings.longest, settings.max_length, settings.requests, settings.eos) == (5, 300, 7, frozenset({EOS}))


def test_several_ends_of_sequence_or_none_are_taken() -> None:
    several, none = config(), config()
    several.model_config.hf_config.eos_token_id = [2, 7]
    none.model_config.hf_config.eos_token_id = None

    assert settings_of(several).eos == {2, 7}
    assert settings_of(none).eos == frozenset()


@pytest.mark.parametrize("additional", [None, {}, {"other": 1}, {"forerun": {}}, object()])
def test_suffix_under_the_governor_drafts_by_default(additional: Any) -> None:
    system = chosen_system(additional)

    assert (system.drafter, system.policy) == ("suffix", "governor")


def test_a_method_is_given_as_in_a_system_file_or_in_part() -> None:
    whole = chosen_system({"forerun": {"drafter": {"name": "lookup", "max_ngram": 5}, "policy": {"name": "cost"}}})
    part = chosen_system({"forerun": {"policy": {"name": "fixed", "k": 2}}})

    assert (whole.drafter, whole.drafter_options, whole.policy) == ("lookup", {"max_ngram": 5}, "cost")
    assert (part.drafter, part.policy, part.policy_options) == ("suffix", "fixed", {"k": 2})


@pytest.mark.parametrize("inside", [True, False])
def test_a_system_file_is_given_by_its_path(tmp_path: Path, inside: bool) -> None:
    path = str(tuned(tmp_path))
    settings = settings_of(config(forerun={"system": path} if inside else path, **SHAPE))

    assert (settings.system.drafter, settings.system.policy) == ("lookup", "cost")


@pytest.mark.parametrize(("field", "name"), [("vocab_size", "vocab_size"), ("num_hidden_layers", "num_layers")])
def test_a_system_of_another_model_is_refused(tmp_path: Path, field: str, name: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"tuned for smollm2, which is another model: its {name} is .* 5; tune"):
        settings_of(config(forerun=str(tuned(tmp_path)), **{**SHAPE, field: 5}))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (3, r'"forerun" in additional_config must be an object or the path of a system file, got 3'),
        (
            {"drafters": {}},
            r"unknown key 'drafters' under \"forerun\" in additional_config; known: system, drafter, policy",
        ),
        ({"system": "a.json", "policy": {"name": "cost"}}, "a system or a method, not both"),
        ({"system": "nowhere.json"}, "can't read the system file nowhere.json"),
        ({"drafter": "lookup"}, r'"drafter" must be an object with a "name", got "lookup"'),
        ({"drafter": {"name": "look"}}, "unknown drafter 'look'; known: "),
        ({"policy": {"name": "cost", "k": 3}}, "policy 'cost' has no option 'k'"),
    ],
)
def test_what_can_not_be_had_is_refused_in_one_sentence(given: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        chosen_system({"forerun": given})
    assert "\n" not in str(refused.value)


def imported(module: str, seen: set[str]) -> None:
    """All that is imported when a module of forerun is, but for what its functions import."""
    if module in seen:
        return
    seen.add(module)
    file = ROOT.joinpath(*module.split(".")[1:])
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    here = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            seen.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            seen.add(str(node.module))
        elif isinstance(node, ast.ImportFrom):
            source = ".".join([*here[: len(here) - node.level + 1], *([node.module] if node.module else [])])
            imported(source, seen)


def test_a_python_without_what_forerun_alone_needs_can_import_it() -> None:
    """vLLM's has no platformdirs, and may have no typer."""
    seen: set[str] = set()
    for module in ("engines.vllm", "drafters.suffix", "drafters.lookup", "drafters.cascade"):
        imported(f"forerun.{module}", seen)
    for module in ("policies.cost", "policies.governor", "policies.fixed", "policies.bounded"):
        imported(f"forerun.{module}", seen)

    assert {"forerun.core.values", "forerun.models.packed.runner", "torch"} <= seen
    outside = {name.split(".")[0] for name in seen} - {"forerun"} - sys.stdlib_module_names
    assert outside <= {"torch", "transformers", "numpy"}

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.drafters.base import DRAFTERS
from forerun.engine.system.file import FILES, MARK, MODELS, read_system, write_system
from forerun.engine.system.value import System, Target, machine_of, target_of
from forerun.errors import UnsupportedOption
from forerun.policies.base import POLICIES
from forerun.testing import tiny_model

METHOD = {"drafter": {"name": "lookup"}}


@pytest.fixture(scope="module")
def system() -> System:
    engine = forerun.load(tiny_model("llama"))
    options = {"skip_attention": (1, 2), "vocabulary": 40}
    figures = {"speedup": 1.25, "interval": [1.2, 1.3], "prompts": {"sha256": "ab"}}
    target = target_of(engine, "smollm2", "int8", "lean")
    return System("mine", "self", options, "threshold", {"confidence": 0.5}, target, machine_of(engine), figures)


def kept(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def test_a_system_is_read_as_it_was_written(tmp_path: Path, system: System) -> None:
    write_system(system, tmp_path / "new" / "system.json")

    assert read_system(tmp_path / "new" / "system.json") == system


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path, system: System) -> None:
    file = kept(tmp_path / "system.json", METHOD)
    write_system(system, file)

    assert read_system(file) == system
    assert list(tmp_path.iterdir()) == [file]


def test_what_is_no_json_is_not_written_and_the_old_file_stays(tmp_path: Path, system: System) -> None:
    file = kept(tmp_path / "system.json", METHOD)

    for broken in (replace(system, measured={"speedup": float("nan")}), replace(system, measured={"model": object()})):
        with pytest.raises(ValueError, match=r"can't write the system 'mine' to .*system.json: "):
            write_system(broken, file)
    assert json.loads(file.read_text()) == METHOD
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path, system: System) -> None:
    blocked = kept(tmp_path / "file", "")

    with pytest.raises(ValueError, match="can't write the system 'mine' to "):
        write_system(system, blocked / "system.json")


def test_a_method_for_any_model_is_a_short_file(tmp_path: Path) -> None:
    system = read_system(kept(tmp_path / "short.json", METHOD))

    assert system == System("short", "lookup")


def test_a_file_may_name_its_system(tmp_path: Path) -> None:
    assert read_system(kept(tmp_path / "s.json", {"name": "mine", **METHOD})).name == "mine"


@pytest.mark.parametrize("option", FILES)
def test_files_are_found_from_the_systems_folder(tmp_path: Path, option: str) -> None:
    data = {"drafter": {"name": "hybrid", "then": "self", option: "parts/it"}}
    system = read_system(kept(tmp_path / "s.json", data))

    assert system.drafter_options == {"then": "self", option: str(tmp_path / "parts" / "it")}


def test_an_absolute_path_stays(tmp_path: Path) -> None:
    data = {"drafter": {"name": "exit_adapter", "adapter": "/somewhere/adapter"}}

    assert read_system(kept(tmp_path / "s.json", data)).drafter_options["adapter"] == "/somewhere/adapter"


def test_a_model_is_a_folder_beside_the_file_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    found = [
        read_system(kept(tmp_path / "s.json", {"drafter": {"name": "draft_model", "model": model}})).drafter_options
        for model in ("draft", "smollm2")
    ]

    assert found == [{"model": str(tmp_path / "draft")}, {"model": "smollm2"}]


def test_a_policys_file_and_the_target_are_found_too(tmp_path: Path, system: System) -> None:
    (tmp_path / "model").mkdir()
    write_system(replace(system, target=replace(system.target, model=str(tmp_path / "model"))), tmp_path / "s.json")
    told = json.loads((tmp_path / "s.json").read_text())
    told["policy"] = {"name": "disco", "classifier": "head"}
    found = read_system(kept(tmp_path / "s.json", told))

    assert told["target"]["model"] == "model"
    assert found.target is not None
    assert found.target.model == str(tmp_path / "model")
    assert found.policy_options == {"classifier": str(tmp_path / "head")}


def test_a_folder_with_its_parts_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one" / "adapter").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    write_system(System("mine", "exit_adapter", {"adapter": "one/adapter"}), "one/system.json")
    (tmp_path / "one").rename(tmp_path / "two")

    assert read_system("two/system.json").drafter_options == {"adapter": "two/adapter"}


def test_what_lies_elsewhere_is_kept_with_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_system(System("mine", "exit_adapter", {"adapter": "adapter"}), "systems/system.json")
    told = json.loads(Path("systems/system.json").read_text())

    assert told["drafter"]["adapter"] == str(tmp_path.resolve() / "adapter")


def test_every_option_that_names_a_file_is_one_of_a_method() -> None:
    entries = [registry.entry(name) for registry in (DRAFTERS, POLICIES) for name in registry.names]
    known = {option for entry in entries for option in entry.options}

    assert {*FILES, *MODELS} <= known


WHOLE = {MARK: 1, **METHOD}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "describes no system; one looks like"),
        ({"policy": {"name": "fixed"}}, "describes no system"),
        ({MARK: 1}, '"drafter" must be an object with a "name", got null'),
        ({"drafter": "lookup"}, '"drafter" must be an object with a "name", got "lookup"'),
        ({**METHOD, "policy": {"k": 3}}, '"policy" must be an object with a "name"'),
        ({**METHOD, "temperature": 1}, "unknown key 'temperature'; known: name, drafter, policy"),
        ({**METHOD, "target": {}}, "unknown key 'target'"),
        ({**WHOLE, MARK: 2}, "a system of format 2, and this forerun reads 1; tune again"),
        ({**WHOLE, "speed": 1}, "unknown key 'speed'; known: .*measured"),
        ({**WHOLE, "target": "smollm2"}, '"target" must be an object with a "model", got "smollm2"'),
        ({**WHOLE, "target": {"model": "m"}}, "the identity of a model needs .*; family is missing"),
        ({**WHOLE, "target": {"model": "m", "size": 1}}, "unknown key of the target 'size'; known: model, identity"),
        ({**WHOLE, "tuned_on": "here"}, '"tuned_on" must be an object, got "here"'),
        ({**WHOLE, "measured": 3}, '"measured" must be an object, got 3'),
    ],
)
def test_what_is_no_system_is_refused(tmp_path: Path, data: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"s\.json:? .*{sentence}"):
        read_system(kept(tmp_path / "s.json", data))


def test_a_form_that_is_no_name_is_refused(tmp_path: Path, system: System) -> None:
    told = {MARK: 1, **system.as_dict()}
    told["target"] = {**told["target"], "weights": 4}

    with pytest.raises(ValueError, match='"weights" of the target must be a name, got 4'):
        read_system(kept(tmp_path / "s.json", told))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"drafter": {"name": "magic"}}, "unknown drafter 'magic'; known: auto, cascade, corpus, draft_model"),
        ({"drafter": {"name": "lookup", "depth": 3}}, "drafter 'lookup' has no option 'depth'; its options: "),
        ({"drafter": {"name": "draft_model"}}, "drafter 'draft_model' needs option 'model'"),
        ({**METHOD, "policy": {"name": "magic"}}, "unknown policy 'magic'; known: "),
        ({**METHOD, "policy": {"name": "fixed", "depth": 3}}, "policy 'fixed' has no option 'depth'"),
    ],
)
def test_a_method_or_an_option_that_is_unknown_here_is_refused(tmp_path: Path, data: Any, sentence: str) -> None:
    with pytest.raises(UnsupportedOption, match=rf"s\.json: {sentence}"):
        read_system(kept(tmp_path / "s.json", data))


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_can_not_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "s.json").write_bytes(content)

    with pytest.raises(ValueError, match=r"can't read the system file .*s\.json"):
        read_system(tmp_path / "s.json")


def test_a_target_without_a_form_is_opened_as_usual(tmp_path: Path, system: System) -> None:
    assert system.target is not None
    target = {"model": "m", "identity": system.target.identity.as_dict(), "dtype": None}
    found = read_system(kept(tmp_path / "s.json", {**WHOLE, "target": target}))

    assert found.target == Target("m", system.target.identity)


def test_activations_of_a_target_are_kept_and_are_8_or_16(tmp_path: Path, system: System) -> None:
    assert system.target is not None
    held = replace(system, target=replace(system.target, activations=8))
    write_system(held, tmp_path / "s.json")
    assert read_system(tmp_path / "s.json") == held
    told = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    told["target"]["activations"] = "many"
    with pytest.raises(UnsupportedOption, match="activations are held in 8 or 16 bits, got many"):
        read_system(kept(tmp_path / "s.json", told))


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "short.json").write_text(json.dumps(METHOD), encoding="utf-8-sig")

    assert read_system(tmp_path / "short.json") == System("short", "lookup")


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(tmp_path: Path, system: System) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_system(system, pipe)
    told = json.loads(os.read(reading, 1 << 16))
    os.close(reading)

    assert told["name"] == "mine"
    assert pipe.is_fifo()


def test_another_engines_settings_are_told_from_a_system(tmp_path: Path) -> None:
    file = tmp_path / "vllm.json"
    file.write_text('{"forerun_engine_system": 1, "engine": "vllm"}')

    with pytest.raises(
        ValueError, match=r"holds settings of vllm, not of forerun; start that by .*vllm\.json\.launch\.sh"
    ):
        read_system(file)

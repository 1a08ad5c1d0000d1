import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.bench.entrants import PLAIN, read_entrants
from forerun.cli.generate import generate
from forerun.errors import UnsupportedOption
from forerun.testing import tiny_model


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


def system(path: Path, data: Any) -> str:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_plain_decoding_takes_part_first_whether_named_or_not() -> None:
    assert [one.name for one in read_entrants(["lookup"])] == [PLAIN, "lookup"]
    assert [one.name for one in read_entrants(["lookup", "plain"])] == [PLAIN, "lookup"]
    assert [one.name for one in read_entrants([])] == [PLAIN]


def test_a_name_is_a_drafter_with_its_default_settings() -> None:
    entrant = read_entrants(["lookup"])[1]
    assert entrant.as_dict() == {"drafter": {"name": "lookup"}}


def test_default_is_what_generate_does_unless_told_otherwise() -> None:
    parameters = inspect.signature(generate).parameters
    (entrant,) = read_entrants(["default"])[1:]
    assert (entrant.drafter, entrant.policy) == (parameters["drafter"].default, parameters["policy"].default)


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UnsupportedOption, match=r"unknown method 'magic'; known: plain, default, draft_model, .*hybrid, lookup, self"
    ):
        read_entrants(["magic"])


def test_a_file_describes_a_system_with_options(tmp_path: Path) -> None:
    data = {"drafter": {"name": "self", "skip_mlp": [1, 2]}, "policy": {"name": "threshold", "confidence": 0.6}}
    entrant = read_entrants([system(tmp_path / "skipping.json", data)])[1]
    assert (entrant.name, entrant.drafter, entrant.policy) == ("skipping", "self", "threshold")
    assert entrant.drafter_options == {"skip_mlp": (1, 2)}
    assert entrant.policy_options == {"confidence": 0.6}


def test_a_file_may_name_its_system(tmp_path: Path) -> None:
    data = {"name": "mine", "drafter": {"name": "lookup"}}
    assert read_entrants([system(tmp_path / "s.json", data)])[1].name == "mine"


def test_what_was_measured_is_described_as_it_was_read(tmp_path: Path) -> None:
    data = {"drafter": {"name": "lookup", "max_ngram": 2}, "policy": {"name": "fixed", "k": 8}}
    assert read_entrants([system(tmp_path / "s.json", data)])[1].as_dict() == data


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("{", "is not JSON"),
        ([], "describes no system"),
        ({"policy": {"name": "fixed"}}, "describes no system"),
        ({"drafter": "lookup"}, '"drafter" must be an object with a "name"'),
        ({"drafter": {"name": "lookup"}, "policy": {"k": 3}}, '"policy" must be an object with a "name"'),
        ({"drafter": {"name": "lookup"}, "temperature": 1}, "unknown key 'temperature'; known: name, drafter, policy"),
    ],
)
def test_a_file_that_is_no_system_is_refused(tmp_path: Path, data: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_entrants([system(tmp_path / "s.json", data)])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't read the system file"):
        read_entrants([str(tmp_path / "none.json")])


def test_an_option_that_a_method_has_not_is_refused(tmp_path: Path, engine: forerun.Engine) -> None:
    data = {"drafter": {"name": "lookup", "depth": 3}}
    with pytest.raises(UnsupportedOption, match="no option 'depth'"):
        read_entrants([system(tmp_path / "s.json", data)])[1].contestant(engine)


@pytest.mark.parametrize(("k", "longest"), [(2, 2), (4, 4)])
def test_the_options_of_a_file_reach_the_method(tmp_path: Path, engine: forerun.Engine, k: int, longest: int) -> None:
    data = {"drafter": {"name": "self", "exit_layer": 3}, "policy": {"name": "fixed", "k": k}}
    contestant = read_entrants([system(tmp_path / "s.json", data)])[1].contestant(engine)
    stats = contestant.answer([5, 6, 7], 20).stats
    assert stats is not None
    assert len(stats.acceptance_per_position) <= longest
    assert stats.drafted > (longest - 1) * (stats.rounds - 2)

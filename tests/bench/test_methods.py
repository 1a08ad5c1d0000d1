import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.bench.methods import PLAIN, backend_of, read_methods
from forerun.cli.generate import generate
from forerun.engine.methods import policy_for
from forerun.engine.system.value import System, target_of
from forerun.errors import UnsupportedOption
from forerun.testing import tiny_model


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


def system(path: Path, data: Any) -> str:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_plain_decoding_takes_part_first_whether_named_or_not() -> None:
    assert [one.name for one in read_methods(["lookup"])] == [PLAIN, "lookup"]
    assert [one.name for one in read_methods(["lookup", "plain"])] == [PLAIN, "lookup"]
    assert [one.name for one in read_methods([])] == [PLAIN]


def test_a_name_is_a_drafter_with_its_default_settings() -> None:
    method = read_methods(["lookup"])[1]
    assert method.method() == {"drafter": {"name": "lookup"}, "policy": {"name": "fixed"}}


def test_default_is_what_generate_does_unless_told_otherwise() -> None:
    parameters = inspect.signature(generate).parameters
    (method,) = read_methods(["default"])[1:]
    drafter, policy = parameters["drafter"].default, parameters["policy"].default
    assert (method.drafter, method.policy) == (drafter, policy_for(drafter, policy)) == ("auto", "cost")


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UnsupportedOption,
        match=r"unknown method 'magic'; known: plain, default, auto, .*hybrid, lookup, ngrams, prediction, recycle, self",
    ):
        read_methods(["magic"])


def test_a_file_describes_a_system_with_options(tmp_path: Path) -> None:
    data = {"drafter": {"name": "self", "skip_mlp": [1, 2]}, "policy": {"name": "threshold", "confidence": 0.6}}
    method = read_methods([system(tmp_path / "skipping.json", data)])[1]
    assert (method.name, method.drafter, method.policy) == ("skipping", "self", "threshold")
    assert method.drafter_options == {"skip_mlp": (1, 2)}
    assert method.policy_options == {"confidence": 0.6}


def test_a_file_may_name_its_system(tmp_path: Path) -> None:
    data = {"name": "mine", "drafter": {"name": "lookup"}}
    assert read_methods([system(tmp_path / "s.json", data)])[1].name == "mine"


def test_what_was_measured_is_described_as_it_was_read(tmp_path: Path) -> None:
    data = {"drafter": {"name": "lookup", "max_ngram": 2}, "policy": {"name": "fixed", "k": 8}}
    assert read_methods([system(tmp_path / "s.json", data)])[1].method() == data


def test_an_option_that_a_method_has_not_is_refused(tmp_path: Path, engine: forerun.Engine) -> None:
    data = {"drafter": {"name": "lookup", "depth": 3}}
    with pytest.raises(UnsupportedOption, match="no option 'depth'"):
        backend_of(read_methods([system(tmp_path / "s.json", data)])[1], engine)


@pytest.mark.parametrize(("k", "longest"), [(2, 2), (4, 4)])
def test_the_options_of_a_file_reach_the_method(tmp_path: Path, engine: forerun.Engine, k: int, longest: int) -> None:
    data = {"drafter": {"name": "self", "exit_layer": 3}, "policy": {"name": "fixed", "k": k}}
    backend = backend_of(read_methods([system(tmp_path / "s.json", data)])[1], engine)
    stats = backend.answer([5, 6, 7], 20).stats
    assert stats is not None
    assert len(stats.acceptance_per_position) <= longest
    assert stats.drafted > (longest - 1) * (stats.rounds - 2)


def test_a_system_that_was_tuned_for_another_model_is_refused(engine: forerun.Engine) -> None:
    other = forerun.load(tiny_model("llama", num_hidden_layers=3))
    tuned = System("tuned", "lookup", target=target_of(other, "other"))

    with pytest.raises(UnsupportedOption, match="'tuned' was tuned for other, which is another model: num_layers is 4"):
        backend_of(tuned, engine)

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from forerun.drafters.base import DRAFTERS
from forerun.models.locate import BUNDLED
from forerun.policies.base import POLICIES

from .conftest import Ran

Call = Callable[..., Ran]


@pytest.mark.parametrize(("command", "registry"), [("drafters", DRAFTERS), ("policies", POLICIES)])
def test_every_method_is_listed_with_options_and_source(forerun: Call, command: str, registry: object) -> None:
    told = json.loads(forerun(command, "--json").out)

    assert [one["name"] for one in told] == list(registry.names)
    for one in told:
        entry = registry.entry(one["name"])
        assert (one["summary"], one["source"]) == (entry.summary, entry.source)
        assert [option["name"] for option in one["options"] if option["name"] != "..."] == list(entry.options)
        assert one["summary"]
        assert one["source"]


def test_options_have_types_and_defaults(forerun: Call) -> None:
    told = {one["name"]: one["options"] for one in json.loads(forerun("policies", "--json").out)}

    assert told["fixed"] == [{"name": "k", "type": "a whole number", "required": False, "default": 3}]
    assert told["bounded"][-1]["type"] == "the options of the one inside"
    drafters = {one["name"]: one["options"] for one in json.loads(forerun("drafters", "--json").out)}
    assert drafters["draft_model"][0]["required"]


def test_tables_say_the_same_to_a_reader(forerun: Call) -> None:
    out = forerun("drafters").out

    for name in DRAFTERS.names:
        assert name in out
    assert "--exit-layer" in out
    assert "2404.16710" in out
    assert "needed" in out
    assert "default 3" in out
    assert "heuristic" in forerun("policies").out


def test_bundled_models_and_tested_families_are_listed(forerun: Call) -> None:
    told = json.loads(forerun("models", "--json").out)

    assert [one["name"] for one in told["bundled"]] == list(BUNDLED)
    assert "llama" in told["families"]
    assert "smollm2" in forerun("models").out


def test_a_bundled_model_that_is_not_installed_is_listed_as_such(
    forerun: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUNDLED, "smollm2", "no-such-package")

    assert json.loads(forerun("models", "--json").out)["bundled"][0]["installed"] is False

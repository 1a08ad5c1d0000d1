from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import transformers

from forerun.cli import listing
from forerun.drafters.base import DRAFTERS
from forerun.families.table import read_table
from forerun.models.files.locate import BUNDLED
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


def test_bundled_models_and_every_decoder_are_listed(forerun: Call) -> None:
    told = json.loads(forerun("models", "--json").out)

    assert [one["name"] for one in told["bundled"]] == list(BUNDLED)
    assert told["families"]["llama"]["result"] == "runs"
    assert told["families"]["bloom"]["result"] == "refused"
    assert told["transformers"] == read_table().transformers
    assert told["installed"] == transformers.__version__
    out = forerun("models").out
    assert "smollm2" in out
    assert "position biases" in out
    assert f"of {len(told['families'])} run" in out


def test_words_choose_families_by_name_or_reason(forerun: Call) -> None:
    assert set(json.loads(forerun("models", "gpt_neo", "--json").out)["families"]) == {
        "gpt_neo",
        "gpt_neox",
        "gpt_neox_japanese",
    }
    out = forerun("models", "alibi").out
    assert "bloom" in out
    assert "llama" not in out
    assert "bundled" not in out
    assert "0 of 0 run" in forerun("models", "nothing-like-it").out


def test_what_a_family_lacks_is_told(forerun: Call) -> None:
    assert "no layer can be left out" in " ".join(forerun("models", "rembert").out.split())


def test_a_table_of_another_transformers_is_told(forerun: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "installed here" not in forerun("models").err
    table = replace(read_table(), transformers="1.2.3")
    monkeypatch.setattr(listing, "read_table", lambda: table)
    told = " ".join(forerun("models").err.split())
    assert f"This table is of transformers 1.2.3; {transformers.__version__} is installed here" in told


def test_a_bundled_model_that_is_not_installed_is_listed_as_such(
    forerun: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUNDLED, "smollm2", "no-such-package")

    assert json.loads(forerun("models", "--json").out)["bundled"][0]["installed"] is False

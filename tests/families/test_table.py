"""The table of the installed transformers' decoders: whole, and the same as what a sample gives now."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from forerun.families.table import REFUSED, RUNS, UNMADE, WRONG, Table, read_table, write_table
from forerun.families.trial import try_family
from forerun.models.files.quiet import quiet
from forerun.models.lean.shape import FAMILIES as LEAN

TABLE = read_table()
SAMPLE = ["llama", "gpt_neo", "falcon", "stablelm", "jetmoe", "bert", "whisper", "bloom", "mamba", "doge", "roberta"]


@pytest.mark.skipif(bool(TABLE.stale), reason="the table is of another version of transformers")
def test_every_decoder_of_transformers_is_in_the_table() -> None:
    assert sorted(TABLE.families) == sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def test_none_is_wrong_and_what_does_not_run_has_a_reason() -> None:
    for name, one in TABLE.families.items():
        assert one["result"] in (RUNS, REFUSED, UNMADE), name
        assert bool(one["reason"]) == (one["result"] != RUNS), name
        assert bool(one["runners"]) == (one["result"] == RUNS), name


def test_the_lean_decoder_runs_its_families() -> None:
    assert {name for name, one in TABLE.families.items() if "lean" in one["runners"]} >= set(LEAN)


@pytest.mark.skipif(bool(TABLE.stale), reason="the table is of another version of transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", SAMPLE)
def test_a_sample_is_as_the_table_says(family: str) -> None:
    with quiet():
        outcome = try_family(family).as_dict()
    assert [outcome[name] for name in ("result", "reason", "skipping")] == [
        TABLE.families[family][name] for name in ("result", "reason", "skipping")
    ]
    assert list(outcome["runners"]) == TABLE.families[family]["runners"]


def small_table(version: str = "1.2.3") -> Table:
    told = {
        "bloom": {"result": REFUSED, "reason": "Alibi", "runners": []},
        "llama": {"result": RUNS, "reason": "", "runners": ["hf"]},
    }
    return Table(version, "2026-01-01", "a command", told)


def test_a_table_comes_back_from_its_file_with_a_line_for_each_family(tmp_path: Path) -> None:
    write_table(small_table(), tmp_path / "table.json")
    assert read_table(tmp_path / "table.json") == small_table()
    assert sum('"llama": ' in line for line in (tmp_path / "table.json").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "found"),
    [("", ["bloom", "llama"]), ("LLA", ["llama"]), ("alibi", ["bloom"]), ("runs", ["llama"]), (WRONG, [])],
)
def test_words_find_families_by_name_result_and_reason(words: str, found: list[str]) -> None:
    assert list(small_table().matching(words)) == found


def test_another_version_of_transformers_is_told() -> None:
    assert small_table(transformers.__version__).stale == ""
    assert f"of transformers 1.2.3; {transformers.__version__} is installed here" in small_table().stale

"""The drafts that come with forerun: small, whole, with a licence and a card."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.core.identity import identity_of
from forerun.models.files.compact_draft import CARD, FILE, read_compact
from forerun.models.files.known_drafts import known_drafts, shipped_folder
from forerun.models.files.ngrams import KIND, is_table, read_ngrams
from forerun.models.loading.load import open_module

MOST_MB = 12
SHIPPED = sorted(shipped_folder().glob("*")) if shipped_folder().is_dir() else []
TABLES = [path for path in SHIPPED if is_table(path)]
SHIPPED = [path for path in SHIPPED if path not in TABLES]


@pytest.mark.parametrize("directory", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_draft_is_whole_and_small_and_says_what_it_is(directory: Path) -> None:
    facts = read_compact(directory).facts
    card = (directory / CARD).read_text(encoding="utf-8")
    assert sorted(path.name for path in directory.iterdir()) == sorted([FILE, CARD])
    assert sum(path.stat().st_size for path in directory.iterdir()) <= MOST_MB * 1e6
    assert facts.license == "Apache-2.0"
    assert facts.acceptance
    for said in (f"# {directory.name}", "Licence: Apache-2.0", "## Figures", "## Training"):
        assert said in card


@pytest.mark.parametrize("directory", TABLES, ids=lambda path: path.name)
def test_a_shipped_table_is_whole_and_small_and_says_what_it_is(directory: Path) -> None:
    table = read_ngrams(directory)
    card = (directory / CARD).read_text(encoding="utf-8")
    assert sorted(path.name for path in directory.iterdir()) == sorted([KIND.about_file, KIND.weights_file, CARD])
    assert sum(path.stat().st_size for path in directory.iterdir()) <= MOST_MB * 1e6
    assert table.target_name
    assert f"{len(table.keys):,} contexts" in card
    assert f"{table.right:.2f}".removeprefix("0") in card
    for said in (f"# {directory.name}", "Licence: Apache-2.0", "## Figures", "## Training"):
        assert said in card


@pytest.mark.real
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_bundled_model_finds_the_drafts_that_were_made_for_it(dtype: str) -> None:
    for_it = {one.name for one in SHIPPED if read_compact(one).facts.target_name == "smollm2"}
    module = open_module("smollm2", dtype=dtype, device="cpu")
    found = known_drafts(identity_of(module.model, module.vocabulary))
    assert for_it <= {one.name for one in found}
    assert {one.name for one in found if one.source == "forerun"} == for_it

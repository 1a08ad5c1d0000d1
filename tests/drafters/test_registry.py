from __future__ import annotations

import forerun
from forerun.drafters import base
from forerun.drafters.registry import DRAFTERS


def test_there_is_one_table_of_drafters() -> None:
    assert base.DRAFTERS is DRAFTERS
    assert forerun.DRAFTERS is DRAFTERS
    assert DRAFTERS.kind == "drafter"


def test_the_drafters_of_the_folder_are_in_it() -> None:
    assert DRAFTERS.entry("lookup").build.__module__ == "forerun.drafters.lookup"

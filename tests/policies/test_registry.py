from __future__ import annotations

import forerun
from forerun.policies import base
from forerun.policies.registry import POLICIES


def test_there_is_one_table_of_policies() -> None:
    assert base.POLICIES is POLICIES
    assert forerun.POLICIES is POLICIES
    assert POLICIES.kind == "policy"


def test_the_policies_of_the_folder_are_in_it() -> None:
    assert POLICIES.entry("fixed").build.__module__ == "forerun.policies.fixed"

from __future__ import annotations

import pytest

import forerun
from forerun.core.learned import Learning
from forerun.engine.kept import kept_for
from forerun.policies.base import POLICIES
from forerun.testing import tiny_model


def test_only_a_drafter_that_chooses_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORERUN_LEARNED")
    engine = forerun.load(tiny_model("llama"))
    policy = POLICIES.entry("cost").build()
    named = engine.using("suffix").drafter
    assert kept_for(engine, named, policy) == (None, "")
    assert kept_for(engine, Learning(named, {}, "auto: x", ""), policy) == (None, "auto: x")


def test_a_switched_off_file_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_LEARNED", "off")
    engine = forerun.load(tiny_model("llama"))
    made = Learning(engine.drafter, {}, "auto: x", "x")
    assert kept_for(engine, made, POLICIES.entry("cost").build()) == (None, "auto: x")

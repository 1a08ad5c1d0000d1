from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.testing import save_tiny

from .conftest import Ran

Call = Callable[..., Ran]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "small", intermediate_size=64))


def test_it_names_the_kernels_and_the_reason(forerun: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    ran = forerun("doctor")
    assert ran.status == 0
    assert "torch operations: FORERUN_NATIVE=off says so" in ran.out
    assert "native kernels built" in ran.out


def test_a_model_in_int4_is_told_its_kernels_and_its_limit(
    forerun: Call, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not processor_levels():
        pytest.skip("forerun was installed without a compiler")
    monkeypatch.setenv(SWITCH, processor_levels()[-1])
    told = json.loads(forerun("doctor", small, "--weights", "int4", "--json").out)
    assert told["model_kernels"] == f"native {processor_levels()[-1]}"
    assert told["step_seconds"] == pytest.approx(told["step_bytes"] / told["bandwidth"])
    assert "a step at best" in forerun("doctor", small, "--weights", "int4").out


def test_a_model_on_torch_is_told_why(forerun: Call, small: str) -> None:
    told = json.loads(forerun("doctor", small, "--json").out)
    assert (told["model_kernels"], told["model_reason"]) == ("torch", "the native step holds weights in int4")
    told = json.loads(forerun("doctor", small, "--runner", "hf", "--json").out)
    assert told["model_reason"] == "it runs on transformers' modules"


def test_an_unknown_switch_is_refused_in_one_sentence(forerun: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "sse2")
    ran = forerun("doctor")
    assert ran.status == 2
    assert (
        ran.said == "forerun: FORERUN_NATIVE=sse2 is unknown; known: off, portable, neon_dotprod, avx2, avxvnni, avx512"
    )


def test_a_profile_names_the_kernels(
    forerun: Call, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "off")
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": "to be or not to be"}) + "\n")
    ran = forerun(
        *("compare", small, "--weights", "int4", "--profile", "--repeats", 1),
        *("--prompts", tmp_path / "prompts.jsonl", "--max-new-tokens", 8),
    )
    assert "kernels: torch (FORERUN_NATIVE=off says so)" in ran.out

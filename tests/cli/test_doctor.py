from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from forerun.cli.doctor import rows
from forerun.cli.threads import cores
from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.models.lean.native.pages import setting
from forerun.models.loading import kept
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
    told = json.loads(forerun("doctor", small, "--dtype", "float16", "--json").out)
    assert told["model_kernels"] == "torch"
    assert told["model_reason"] == ("the native step holds floats in float32 and bfloat16 and the model's are float16")
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


def test_a_profile_names_the_kernels_of_the_drafter_too(
    forerun: Call, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "off")
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": "to be or not to be"}) + "\n")
    ran = forerun(
        *("compare", small, "--weights", "int4", "--profile", "--repeats", 1, "--drafter", "draft_model"),
        *("--drafter-model", small, "--prompts", tmp_path / "prompts.jsonl", "--max-new-tokens", 8),
    )
    assert ran.out.count("torch (FORERUN_NATIVE=off says so)") == 2
    assert "kernels of " in ran.out


def test_threads_openmp_and_large_pages_are_told(forerun: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    told = json.loads(forerun("doctor", "--json").out)
    assert (told["threads"], told["cores"]) == (torch.get_num_threads(), cores())
    assert (told["openmp"]["OMP_WAIT_POLICY"], told["openmp_spins"]) == ("active", "OMP_WAIT_POLICY")
    assert told["large_pages"] == setting()
    shown = dict(rows(told))
    assert "OMP_WAIT_POLICY=active" in shown["OpenMP"]
    assert "OMP_WAIT_POLICY makes torch's threads take cores from the native step: unset it" in shown["OpenMP"]
    assert shown["processor"].endswith(f"{torch.get_num_threads()} threads used, {cores()} cores")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert json.loads(forerun("doctor", "--json").out)["openmp_spins"] is None


def test_where_packed_weights_are_kept_is_told(forerun: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    monkeypatch.delenv("FORERUN_PACKED", raising=False)
    told = json.loads(forerun("doctor", "--json").out)
    assert (told["weights_folder"], told["weights_kept"]) == (str(tmp_path / "weights"), 0)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "m.safetensors").write_bytes(bytes(5))
    assert json.loads(forerun("doctor", "--json").out)["weights_kept"] == 5
    monkeypatch.setenv("FORERUN_PACKED", "off")
    assert json.loads(forerun("doctor", "--json").out)["weights_folder"] is None
    assert "off (FORERUN_PACKED)" in forerun("doctor").out


def test_a_models_weights_are_said_to_be_mapped_or_why_not(
    forerun: Call, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not processor_levels():
        pytest.skip("forerun was installed without a compiler")
    monkeypatch.setenv(SWITCH, processor_levels()[-1])
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    monkeypatch.delenv("FORERUN_PACKED", raising=False)
    told = json.loads(forerun("doctor", small, "--weights", "int4", "--json").out)
    assert told["weights_file"] is None
    assert told["weights_reason"].startswith("the model is small")
    assert "in memory of this process: the model is small" in " ".join(
        forerun("doctor", small, "--weights", "int4").out.split()
    )

    monkeypatch.setattr(kept, "LEAST", 0)
    told = json.loads(forerun("doctor", small, "--weights", "int4", "--json").out)
    assert Path(told["weights_file"]).parent == tmp_path / "weights"
    assert told["weights_bytes"] > 0
    assert "mapped from" in forerun("doctor", small, "--weights", "int4").out

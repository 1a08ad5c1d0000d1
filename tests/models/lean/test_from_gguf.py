"""GGUF files on the lean decoder: 4-bit blocks keep their values, rows stand in the right order, oddities are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from forerun.errors import InvalidModelFile, UnsupportedModel, UnsupportedOption
from forerun.models.files.quiet import quiet
from forerun.models.lean.from_gguf import GRIDS, GgufSource, lean_from_gguf
from forerun.models.lean.linear import Int8
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.native.matrix import Repacked
from forerun.models.lean.runner import LeanRunner
from forerun.models.lean.shape import PRE
from forerun.models.lean.weights import quantise_int4
from forerun.models.loading.load import open_model
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ..gguf.tiny_gguf import write_gguf, write_model
from ..running import finish, own_logits
from .native.kernels import LEVELS, kernels, needs_kernels

IDS = [60, 25, 35, 29, 55, 1, 200, 17, 3]
TYPES = gguf.GGMLQuantizationType


def random_blocks(kind: str, rows: int = 6, columns: int = 512) -> np.ndarray:
    """A tensor's bytes of this type, with scales and minima of a sensible size."""
    rng = np.random.default_rng(0)
    size, width = gguf.GGML_QUANT_SIZES[TYPES[kind]]
    blocks = rng.integers(0, 256, (rows, columns // size, width), dtype=np.uint8)
    halves = 1 if kind == "Q4_0" else 2
    scales = rng.normal(scale=0.1, size=(rows, columns // size, halves)).astype(np.float16)
    blocks[..., : 2 * halves] = scales.view(np.uint8)
    return blocks.reshape(rows, -1)


def by_transformers(file: Path) -> Any:
    with quiet():
        return AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()


def configuration(file: Path) -> Any:
    with quiet():
        return AutoConfig.from_pretrained(file.parent, gguf_file=file.name)


def logits(runner: LeanRunner) -> torch.Tensor:
    return finish(Sequence(runner).forward(IDS)).logits


def off(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


@pytest.mark.parametrize("kind", GRIDS)
def test_4_bit_blocks_have_exactly_the_values_that_gguf_gives_them(kind: str) -> None:
    blocks = random_blocks(kind)
    grid = GRIDS[kind](torch.from_numpy(blocks))
    expected = torch.from_numpy(gguf.quants.dequantize(blocks, TYPES[kind]))
    assert grid.codes.shape == expected.shape
    assert torch.allclose(grid.dense(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "F32"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_file_in_floats_says_what_transformers_says(tmp_path: Path, kind: str, tied: bool) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", kind=kind, tied=tied)
    runner = lean_from_gguf(file, configuration(file), "float32")
    assert off(logits(runner), own_logits(by_transformers(file), IDS)) < 1e-5


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_both_orders_of_rotated_rows_are_read(tmp_path: Path, architecture: str) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", architecture, kind="Q4_1")
    with quiet():
        model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32).eval()
    if architecture == "qwen2":
        for layer in model.model.layers:
            for name in ("q_proj", "k_proj", "v_proj"):
                torch.nn.init.zeros_(getattr(layer.self_attn, name).bias)
    runner = lean_from_gguf(file, configuration(file), "float32")
    assert off(logits(runner), own_logits(model, IDS)) < 1e-5


def test_4_bit_files_lose_less_than_their_floats_quantised_again(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", kind="Q4_1")
    expected = own_logits(by_transformers(file), IDS)
    direct = off(logits(lean_from_gguf(file, configuration(file), "int4")), expected)
    again = off(logits(LeanRunner.from_model(by_transformers(file), "int4")), expected)
    assert direct < 0.03
    assert direct <= again * 1.1


def test_codes_are_kept_as_they_are(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", kind="Q4_1")
    grid = GgufSource(file, PRE, keep_grid=True).take("model.layers.0.mlp.down_proj.weight")
    floats = GgufSource(file, PRE, keep_grid=False).take("model.layers.0.mlp.down_proj.weight")
    assert isinstance(floats, torch.Tensor)
    assert not isinstance(grid, torch.Tensor)
    assert torch.allclose(grid.dense(), floats, atol=1e-6)
    assert not torch.equal(quantise_int4(floats).scales, grid.scales)


def test_8_bit_blocks_have_no_kernel_and_become_rows(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", kind="Q8_0")
    runner = lean_from_gguf(file, configuration(file), "int8")
    assert off(logits(runner), own_logits(by_transformers(file), IDS)) < 0.05


def test_the_name_is_the_files(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    assert lean_from_gguf(file, configuration(file)).name == "tiny"
    assert lean_from_gguf(file, configuration(file), name="other").name == "other"


def test_opening_a_file_in_int4_keeps_its_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    file = write_gguf(tmp_path / "tiny.gguf", kind="Q4_1")
    opened = open_model(file, weights="int4", device="cpu").runner
    assert isinstance(opened, LeanRunner)
    assert torch.equal(logits(opened), logits(lean_from_gguf(file, configuration(file), "int4")))
    assert not torch.equal(logits(opened), logits(LeanRunner.from_model(by_transformers(file), "int4")))


@needs_kernels
@pytest.mark.parametrize("kind", GRIDS)
def test_native_kernels_hold_what_the_file_holds(kind: str) -> None:
    blocks = random_blocks(kind)
    held = Repacked(kernels(), GRIDS[kind](torch.from_numpy(blocks))).dense()
    expected = torch.from_numpy(gguf.quants.dequantize(blocks, TYPES[kind]))
    # Q4_K has the products of two scales, which need more than a float16
    allowed = 5e-4 if kind == "Q4_K" else 1e-6
    assert torch.allclose(held, expected, rtol=allowed, atol=allowed * float(expected.abs().max()))


@needs_kernels
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_file_in_4_bits_is_run_as_it_is_its_head_included(
    tmp_path: Path, kind: str, tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, LEVELS[-1])
    file = write_gguf(tmp_path / "tiny.gguf", kind=kind, tied=tied)
    runner = lean_from_gguf(file, configuration(file))
    tables = {runner._decoder.embedding, runner._decoder.head}
    assert len(tables) == (1 if tied else 2)
    assert {table.bits for table in tables if isinstance(table, Repacked)} == {4}
    theirs = by_transformers(file)
    ids = torch.tensor(IDS)
    assert torch.allclose(runner.embed(ids), theirs.get_input_embeddings()(ids), rtol=1e-6, atol=1e-6)
    expected = own_logits(theirs, IDS)
    assert off(logits(runner), expected) < 5e-4
    some = runner.add_head([5, 200, 9])
    rows = finish(Sequence(runner).forward(IDS, plan=LayerPlan(head=some)))
    assert torch.equal(rows.logits[:, [5, 9, 200]], logits(runner)[:, [5, 9, 200]])
    monkeypatch.setenv(SWITCH, "off")
    assert isinstance(lean_from_gguf(file, configuration(file))._decoder.head, Int8)


@needs_kernels
def test_a_head_of_other_types_is_held_in_8_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, LEVELS[-1])
    file = write_gguf(tmp_path / "tiny.gguf", kind="Q8_0")
    for runner in (lean_from_gguf(file, configuration(file)), LeanRunner.from_model(by_transformers(file), "int4")):
        for table in (runner._decoder.embedding, runner._decoder.head):
            assert isinstance(table, Repacked)
            assert table.bits == 8


def test_a_tensor_that_has_no_place_is_refused(tmp_path: Path) -> None:
    config = configuration(write_gguf(tmp_path / "tiny.gguf", layers=2))
    file = write_gguf(tmp_path / "more.gguf", layers=3)
    with pytest.raises(UnsupportedModel, match=r"doesn't know what model\.layers\.2\.\S+ is for \(9 such"):
        lean_from_gguf(file, config)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    config = configuration(write_gguf(tmp_path / "tiny.gguf", layers=3))
    file = write_gguf(tmp_path / "less.gguf", layers=2)
    with pytest.raises(UnsupportedModel, match=r"no tensor for model\.layers\.2\.self_attn\.q_proj\.weight"):
        lean_from_gguf(file, config)


def test_frequency_factors_that_the_configuration_has_not_are_refused(tmp_path: Path) -> None:
    tensors = {"rope_freqs.weight": np.array([1.0, 2.0, 4.0, 8.0])}
    model = tiny_model("llama", vocab_size=260, intermediate_size=64)
    file = write_model(tmp_path / "m.gguf", model, tensors=tensors)
    with pytest.raises(UnsupportedModel, match=r"doesn't know what rope_freqs\.weight is for"):
        lean_from_gguf(file, model.config)


def test_an_architecture_of_another_order_is_refused(tmp_path: Path) -> None:
    config = configuration(write_gguf(tmp_path / "tiny.gguf"))
    file = write_gguf(tmp_path / "other.gguf", "gptneox")
    with pytest.raises(UnsupportedModel, match=r"other\.gguf holds a gptneox; read straight from GGUF are llama, "):
        lean_from_gguf(file, config)


def test_a_broken_file_is_told(tmp_path: Path) -> None:
    config = configuration(write_gguf(tmp_path / "tiny.gguf"))
    (tmp_path / "broken.gguf").write_bytes((tmp_path / "tiny.gguf").read_bytes()[:3000])
    with pytest.raises(InvalidModelFile, match=r"broken\.gguf can't be read; it is corrupt or truncated"):
        lean_from_gguf(tmp_path / "broken.gguf", config)


def test_unknown_weights_are_refused(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedOption, match="unknown weights 'int5'"):
        lean_from_gguf(file, configuration(file), "int5")

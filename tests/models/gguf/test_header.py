"""What a GGUF file says before its weights."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from forerun.errors import InvalidModelFile, UnsupportedModel
from forerun.models.gguf.header import Header, read_header
from forerun.testing import tiny_model

from .tiny_gguf import write_gguf, write_model


def test_keys_tensors_and_factors_are_read(tmp_path: Path) -> None:
    model = tiny_model("llama", vocab_size=260)
    header = read_header(write_model(tmp_path / "m.gguf", model, tensors={"rope_freqs.weight": np.array([1, 2, 4, 8])}))
    assert (header.name, header.architecture) == ("m.gguf", "llama")
    assert header.own["block_count"] == 4
    assert header.own["rope.freq_base"] == 10000.0
    assert header.keys["tokenizer.ggml.eos_token_id"] == 256
    assert "blk.3.ffn_down.weight" in header.tensors
    assert header.factors == {"rope_freqs.weight": [1.0, 2.0, 4.0, 8.0]}


def test_keys_of_another_architecture_are_not_its_own() -> None:
    header = Header("m.gguf", "llama", {"llama.block_count": 2, "llama4.block_count": 3, "general.name": "x"}, (), {})
    assert header.own == {"block_count": 2}


def test_a_refusal_names_the_file_the_key_and_the_value() -> None:
    header = Header("m.gguf", "llama", {"llama.logit_scale": 0.5}, (), {})
    assert (
        str(header.refuse_own("logit_scale", "no such thing")) == "m.gguf sets llama.logit_scale to 0.5: no such thing"
    )


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix"])
def test_what_is_no_language_model_is_refused(tmp_path: Path, kind: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_type(kind)
    writer.add_tensor("x", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match=f"sets general.type to '{kind}': forerun loads whole language models"):
        read_header(tmp_path / "m.gguf")


@pytest.mark.parametrize("share", [0.001, 0.1, 0.7])
def test_a_truncated_file_is_told_in_one_sentence(tmp_path: Path, share: float) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InvalidModelFile, match=r"m\.gguf can't be read; it is corrupt or truncated") as caught:
        read_header(file)
    assert "\n" not in str(caught.value)

"""GGUF files: converted once, whole or not at all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from forerun.errors import InvalidModelFile, UnsupportedModel
from forerun.models.gguf import convert as module
from forerun.models.gguf.convert import PARTIAL, STALE_SECONDS, VERSION, cache_directory, converted, fingerprint
from forerun.models.loading.load import open_model
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ..running import finish, off, own_logits
from .tiny_gguf import END, write_gguf, write_model


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


def held(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


@pytest.mark.parametrize(
    ("name", "dtype"), [(None, torch.bfloat16), ("float32", torch.float32), ("float16", torch.float16)]
)
def test_a_file_becomes_a_model_with_its_tokenizer_and_end(file: Path, name, dtype) -> None:
    loaded = open_model(file, dtype=name)
    assert (loaded.name, loaded.runner.dtype, loaded.eos) == ("tiny", dtype, {END})
    assert loaded.runner.max_length == 128
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("the héron")) == "the héron"
    assert loaded.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "<user>hi"


def test_the_weights_are_the_files_own(file: Path) -> None:

    loaded = open_model(file, dtype="float32")
    directly = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    ids = [5, 6, 200, 7]
    assert off(finish(Sequence(loaded.runner).forward(ids)).logits, own_logits(directly, ids)) < 1e-4


def test_a_model_object_that_transformers_read_from_a_file_runs_too(file: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    loaded = open_model(model)
    ids = [5, 6, 200, 7]
    assert off(finish(Sequence(loaded.runner).forward(ids)).logits, own_logits(model, ids)) < 1e-4


def test_a_file_is_converted_once_a_dtype(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = converted(file, torch.bfloat16)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_convert", lambda *args: pytest.fail("converted again"))
        assert converted(file, torch.bfloat16) == first
    assert converted(file, torch.float32) != first
    assert len(held(cache)) == 2


def test_another_file_under_the_same_name_is_converted_anew(file: Path) -> None:
    first = converted(file, torch.bfloat16)
    write_gguf(file, seed=1)
    second = converted(file, torch.bfloat16)
    assert first != second
    assert not torch.equal(*(load_file(path / "model.safetensors")["lm_head.weight"] for path in (first, second)))


def test_nothing_but_safetensors_is_written(file: Path) -> None:
    written = {path.suffix for path in converted(file, torch.bfloat16).iterdir()}
    assert written <= {".safetensors", ".json", ".jinja"}
    assert ".safetensors" in written


def test_files_that_lie_beside_it_are_not_mixed_in(file: Path) -> None:
    for name in ("config.json", "tokenizer_config.json", "adapter_config.json", "tokenizer.json"):
        (file.parent / name).write_text("not even JSON")
    assert open_model(file).tokenizer.decode([65, 66])


def test_the_conversion_is_silent_but_for_one_line(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    converted(file, torch.bfloat16)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "converting tiny.gguf (once)\n")
    converted(file, torch.bfloat16)
    assert capfd.readouterr() == ("", "")


def test_transformers_own_bar_moves_ours() -> None:
    shown: list[int] = []
    meter = module._Meter(shown.append)
    assert meter.write("Converting: ") == 12
    for text in ("  0%|   | 0/4", "noise 12%", " 50%|▌ | 2/4 75%|▊ |", "100%|██| 4/4"):
        meter.write(text)
    assert shown == [0, 50, 75, 100]


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.3, 0.7, 0.999])
def test_a_truncated_file_is_one_clear_sentence_and_leaves_nothing(file: Path, cache: Path, share: float) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(
        InvalidModelFile, match=r"tiny\.gguf can't be read; it is corrupt or truncated, download it again"
    ) as caught:
        open_model(file)
    assert "\n" not in str(caught.value)
    assert held(cache) == []


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04 a zip file", b"\x80\x04 a pickle"])
def test_a_file_of_another_kind_is_refused_by_its_first_bytes(file: Path, cache: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(InvalidModelFile, match=r"tiny\.gguf is not a GGUF file: it begins with"):
        open_model(file)
    assert held(cache) == []


def test_a_file_without_some_weight_is_refused(file: Path, cache: Path) -> None:
    data = file.read_bytes()
    name = b"blk.1.ffn_up.weight"
    assert data.count(name) == 1
    file.write_bytes(data.replace(name, b"blk.1.ffn_xx.weight"))
    with pytest.raises(InvalidModelFile, match=r"tiny\.gguf lacks weights, such as model\.layers\.1\.mlp\.up_proj"):
        open_model(file)
    assert held(cache) == []


def test_an_unknown_architecture_is_unsupported_and_not_corrupt(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="architecture wonder is not supported"):
        open_model(write_gguf(tmp_path / "wonder.gguf", "wonder"))


def test_a_vocabulary_that_transformers_does_not_know_is_unsupported_and_not_corrupt(tmp_path: Path) -> None:
    file = write_model(tmp_path / "m.gguf", tiny_model("llama", vocab_size=260), tokenizer={"model": "wonder"})
    with pytest.raises(UnsupportedModel, match=r"m\.gguf: Cannot build a tokenizer .* 'wonder'") as caught:
        open_model(file)
    assert "\n" not in str(caught.value)


def test_what_an_older_release_converted_is_not_used_again(file: Path, cache: Path) -> None:
    target = converted(file, torch.bfloat16)
    assert target.name.endswith(f"-v{VERSION}")
    older = target.rename(target.with_name(target.name.removesuffix(f"-v{VERSION}")))
    assert converted(file, torch.bfloat16) == target != older


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_a_missing_package_is_named_with_the_extra_that_has_it(file: Path, monkeypatch, package: str) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(UnsupportedModel, match=rf"needs the package {package}: pip install 'forerun\[gguf\]'"):
        converted(file, torch.bfloat16)


def test_an_interrupted_conversion_leaves_nothing(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(source: Path, dtype: torch.dtype, directory: Path) -> None:
        (directory / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            converted(file, torch.bfloat16)
    assert held(cache) == []
    assert open_model(file).name == "tiny"


def test_a_killed_conversion_is_never_taken_for_a_finished_one(file: Path, cache: Path) -> None:
    remains = cache / f"{PARTIAL}killed"
    remains.mkdir(parents=True)
    (remains / "config.json").write_text("{")
    target = converted(file, torch.bfloat16)
    assert not target.name.startswith(PARTIAL)
    assert remains.exists()
    old = time.time() - STALE_SECONDS - 1
    os.utime(remains, (old, old))
    converted(file, torch.float32)
    assert not remains.exists()


def test_of_two_conversions_at_once_the_first_to_finish_stays(file: Path, cache: Path, monkeypatch) -> None:
    convert = module._convert

    def outrun(source: Path, dtype: torch.dtype, directory: Path) -> None:
        convert(source, dtype, directory)
        monkeypatch.setattr(module, "_convert", convert)
        first.append(converted(source, dtype))
        (first[0] / "mark").touch()

    first: list[Path] = []
    monkeypatch.setattr(module, "_convert", outrun)
    assert converted(file, torch.bfloat16) == first[0]
    assert (first[0] / "mark").exists()
    assert held(cache) == [first[0].name]


def test_a_target_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "partial"
    source.mkdir()
    with pytest.raises(OSError, match="No such file"):
        module._publish(source, tmp_path / "missing" / "target")


def test_the_cache_is_where_the_environment_says_or_in_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", "/somewhere")
    assert cache_directory() == Path("/somewhere")
    monkeypatch.delenv("FORERUN_CACHE")
    assert cache_directory().name == "forerun"


def test_a_fingerprint_sees_the_size_and_changes_at_either_end_and_between(tmp_path: Path) -> None:
    file = tmp_path / "large"
    content = bytearray(40 << 20)
    seen = set()
    for place in (None, 0, len(content) - 1, len(content) // 15 * 7):
        if place is not None:
            content[place] ^= 1
        file.write_bytes(content)
        seen.add(fingerprint(file))
    file.write_bytes(content + b"\0")
    seen.add(fingerprint(file))
    assert len(seen) == 5

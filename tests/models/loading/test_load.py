"""Opening models: directories, objects, dtypes, devices, ends of text, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, T5Config, T5ForConditionalGeneration

from forerun.errors import ForerunError, InvalidModelFile, ModelNotFound, UnsupportedModel, UnsupportedOption
from forerun.models.lean.runner import LeanRunner
from forerun.models.loading import load as module
from forerun.models.loading.load import default_device, device_of, dtype_of, open_model
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import END, save_tiny, tiny_model, tiny_tokenizer

from ..running import finish, off, own_logits, text


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("kind", [str, Path])
def test_a_directory_is_opened_with_its_tokenizer(directory: Path, kind: type) -> None:
    loaded = open_model(kind(directory))
    assert (loaded.name, loaded.runner.name, loaded.runner.num_layers) == ("tiny", "tiny", 4)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("hé")) == "hé"
    assert loaded.eos == {END}
    own = tiny_model("llama", vocab_size=len(loaded.tokenizer), eos_token_id=END)
    assert off(finish(Sequence(loaded.runner).forward(text(9))).logits, own_logits(own, text(9))) < 1e-4


def test_a_relative_directory_is_named_by_its_last_part(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    assert open_model(".").name == "tiny"


def test_loading_is_silent(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_model(directory)
    assert capfd.readouterr() == ("", "")


def test_a_directory_without_a_tokenizer_works_on_ids(directory: Path) -> None:
    for file in directory.glob("tokenizer*"):
        file.unlink()
    loaded = open_model(directory)
    assert loaded.tokenizer is None
    assert loaded.eos == {END}


def test_a_given_tokenizer_is_used(directory: Path) -> None:
    tokenizer = tiny_tokenizer()
    assert open_model(directory, tokenizer=tokenizer).tokenizer is tokenizer


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_the_checkpoints_own_dtype_is_kept_unless_another_is_asked_for(tmp_path: Path, stored: torch.dtype) -> None:
    tiny_model("llama").to(stored).save_pretrained(tmp_path)
    assert open_model(tmp_path).runner.dtype == stored
    assert open_model(tmp_path, dtype="float32").runner.dtype == torch.float32
    assert open_model(tmp_path, dtype=torch.bfloat16).runner.dtype == torch.bfloat16


@pytest.mark.parametrize("unknown", ["float", "int8", "fp16", torch.int8, torch.float64])
def test_an_unknown_dtype_lists_the_known_ones(directory: Path, unknown) -> None:
    with pytest.raises(UnsupportedOption, match=f"unknown dtype {unknown}; known: float32, bfloat16, float16"):
        open_model(directory, dtype=unknown)


def test_no_dtype_and_no_device_leave_the_choice_open() -> None:
    assert dtype_of(None) is None
    assert device_of(None) is None


@pytest.mark.parametrize("unknown", ["gpu", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_there_is_refused(directory: Path, unknown: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"no device {unknown} here: "):
        open_model(directory, device=unknown)


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_fastest_device_that_is_there_is_the_default(monkeypatch, cuda: bool, mps: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert default_device().type == expected


def test_a_model_object_is_taken_as_it_is() -> None:
    model = tiny_model("llama", eos_token_id=5)
    loaded = open_model(model)
    assert isinstance(loaded.runner, HFRunner)
    assert (loaded.tokenizer, loaded.eos, loaded.name) == (None, {5}, "LlamaForCausalLM")
    assert next(loaded.runner.model.parameters()) is next(model.parameters())


def test_a_model_object_may_be_asked_for_what_it_is() -> None:
    assert open_model(tiny_model("llama"), dtype="float32", device="cpu").runner.dtype == torch.float32


def test_a_model_object_is_neither_cast_nor_moved() -> None:
    model = tiny_model("llama")
    with pytest.raises(
        UnsupportedOption, match=r"dtype torch\.bfloat16 was asked for and the model object holds torch\.float32"
    ):
        open_model(model, dtype="bfloat16")
    with pytest.raises(UnsupportedOption, match="device meta was asked for and the model object is on cpu"):
        open_model(model, device="meta")


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 2), 3, {"model": 1}])
def test_what_is_no_transformers_model_is_refused(model: object) -> None:
    with pytest.raises(UnsupportedModel, match=f"forerun runs transformers models, got a {type(model).__name__}"):
        open_model(model)


def test_every_end_of_text_is_known() -> None:
    model = tiny_model("llama", eos_token_id=3)
    model.generation_config = GenerationConfig(eos_token_id=[7, 9])
    assert open_model(model, tokenizer=tiny_tokenizer()).eos == {3, 7, 9, END}


def test_a_model_without_an_end_of_text_has_none() -> None:
    assert open_model(tiny_model("llama")).eos == frozenset()


def test_pickled_weights_are_refused_with_the_reason(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(
        UnsupportedModel, match=r"holds no safetensors weights; pickled ones .* can run code when they are read"
    ):
        open_model(directory)


def test_a_directory_without_a_configuration_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"holds no model: it has no config\.json"):
        open_model(tmp_path)


def test_a_checkpoint_that_lacks_weights_is_refused_and_not_made_up(directory: Path) -> None:
    file = directory / "model.safetensors"
    weights = load_file(file)
    del weights["lm_head.weight"], weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(
        UnsupportedModel, match=r"lacks weights that a LlamaForCausalLM needs, such as lm_head\.weight \(2 in all\)"
    ):
        open_model(directory)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_damaged_weights_are_one_clear_sentence(directory: Path, share: float) -> None:
    file = directory / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        InvalidModelFile, match="has weights that are corrupt or truncated, download them again"
    ) as caught:
        open_model(directory)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", '{"model_type": "no-such-model"}', "{}"])
def test_a_damaged_or_unknown_configuration_is_one_clear_sentence(directory: Path, content: str) -> None:
    (directory / "config.json").write_text(content)
    with pytest.raises(ForerunError, match="can't be loaded as a causal language model") as caught:
        open_model(directory)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8", "gguf"])
def test_a_quantised_checkpoint_is_refused_before_it_is_read(directory: Path, method: str) -> None:
    edit(directory / "config.json", quantization_config={"quant_method": method, "bits": 4})
    with pytest.raises(UnsupportedModel, match=f"tiny is quantised by {method}, which forerun can't run"):
        open_model(directory)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    config = T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=20)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    with pytest.raises(
        UnsupportedModel, match="can't be loaded as a causal language model: Unrecognized configuration class"
    ):
        open_model(tmp_path)


def test_code_in_a_checkpoint_is_not_run_unless_asked(directory: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (directory / "code.py").write_text(f"open({str(mark)!r}, 'w')\nclass Config: pass\n")
    edit(directory / "config.json", auto_map={"AutoConfig": "code.Config"}, model_type="custom")
    with pytest.raises(UnsupportedModel, match="can't be loaded"):
        open_model(directory)
    assert not mark.exists()


@pytest.mark.parametrize(("runner", "check"), [("hf", "self_check"), ("lean", "check_logits")])
def test_a_model_is_checked_when_it_is_opened(
    runner: str, check: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedModel("not equal")

    monkeypatch.setattr(module, check, refuse)
    with pytest.raises(UnsupportedModel, match="not equal"):
        open_model(directory, runner=runner)


def test_the_lean_decoder_is_taken_where_it_applies(directory: Path) -> None:
    assert isinstance(open_model(directory).runner, LeanRunner)
    assert isinstance(open_model(directory, runner="hf").runner, HFRunner)
    assert isinstance(open_model(tiny_model("llama")).runner, HFRunner)


def test_what_the_lean_decoder_can_not_hold_runs_on_transformers_modules(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = finish(Sequence(open_model(directory, runner="hf").runner).forward(text(9))).logits
    build = LeanRunner.from_model

    def broken(model, weights, name):
        build(model, weights, name)
        raise UnsupportedModel("the lean decoder doesn't know what this is for")

    monkeypatch.setattr(LeanRunner, "from_model", broken)
    loaded = open_model(directory)
    assert isinstance(loaded.runner, HFRunner)
    assert torch.equal(finish(Sequence(loaded.runner).forward(text(9))).logits, expected)
    for options in ({"runner": "lean"}, {"weights": "int8"}):
        with pytest.raises(UnsupportedModel, match="doesn't know what this is for"):
            open_model(directory, **options)


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_a_full_memory_is_no_reason_to_load_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: type
) -> None:
    def full(*_: object) -> None:
        raise error("full")

    monkeypatch.setattr(LeanRunner, "from_model", full)
    with pytest.raises(error, match="full"):
        open_model(directory)


def test_what_neither_decoder_can_run_is_told_by_transformers_modules(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedModel("not equal on its own modules")

    monkeypatch.setattr(module, "check_logits", refuse)
    monkeypatch.setattr(module, "self_check", refuse)
    with pytest.raises(UnsupportedModel, match="not equal on its own modules"):
        open_model(directory)


def test_small_weights_are_held_and_write_about_the_same(tmp_path: Path) -> None:
    directory = save_tiny(tmp_path / "tiny", intermediate_size=64)

    def row(weights: str) -> torch.Tensor:
        return finish(Sequence(open_model(directory, weights=weights).runner).forward(text(9))).logits.float()

    whole = row("")
    for weights, allowed in [("int8", 0.1), ("int4", 0.6)]:
        assert 0 < float((row(weights) - whole).norm() / whole.norm()) < allowed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runner": "fast"}, "unknown runner 'fast'; known: auto, lean, hf"),
        ({"weights": "int2"}, "unknown weights 'int2'; known: float32, bf16, int8, int4"),
        ({"weights": "int8", "runner": "hf"}, "can't run on the lean decoder, which small weights need: runner 'hf'"),
    ],
)
def test_unknown_forms_are_refused(directory: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(UnsupportedOption, match=message):
        open_model(directory, **options)


@pytest.mark.parametrize("options", [{"weights": "int8"}, {"runner": "lean"}])
def test_a_model_object_keeps_its_own_modules(options: dict[str, str]) -> None:
    with pytest.raises(UnsupportedOption, match="a model object runs on its own modules"):
        open_model(tiny_model("llama"), **options)


def test_a_name_that_nobody_has_is_not_found() -> None:
    with pytest.raises(ModelNotFound, match="there is no such file"):
        open_model("/no/such/model")


@pytest.mark.real
def test_the_bundled_model_speaks_and_opens_quickly_the_second_time() -> None:
    loaded = open_model("smollm2")
    assert (loaded.name, loaded.runner.dtype, loaded.runner.max_length) == ("smollm2", torch.bfloat16, 8192)
    chat = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]
    ids = loaded.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert loaded.tokenizer.decode(ids).endswith("<|im_start|>assistant\n")
    assert loaded.eos == {loaded.tokenizer.convert_tokens_to_ids("<|im_end|>")}
    sequence, length = Sequence(loaded.runner), len(ids)
    for _ in range(8):
        ids.append(int(finish(sequence.sync(ids)).logits[-1].argmax()))
    assert "Paris" in loaded.tokenizer.decode(ids[length:])

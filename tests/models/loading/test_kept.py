"""Models on packed weights that are kept: the second opening maps what the first one wrote, and says the same."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.models.lean.mapped.place import SWITCH
from forerun.models.lean.native import library
from forerun.models.lean.runner import LeanRunner
from forerun.models.loading import kept, load
from forerun.models.loading.load import Loaded, open_model
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import save_tiny, tiny_model, tiny_tokenizer

from ..gguf.tiny_gguf import write_gguf
from ..lean.native.kernels import LEVELS, needs_kernels
from ..running import finish, text

pytestmark = needs_kernels


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where weights are kept, of small models as well."""
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(library.SWITCH, LEVELS[-1])
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(kept, "LEAST", 0)
    return tmp_path / "cache" / "weights"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny", intermediate_size=64)


def lean(loaded: Loaded) -> LeanRunner:
    assert isinstance(loaded.runner, LeanRunner)
    return loaded.runner


def logits(loaded: Loaded) -> torch.Tensor:
    return finish(Sequence(loaded.runner).forward(text(12))).logits


def files(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.safetensors"))


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the model was packed again")


def test_the_second_opening_maps_what_the_first_wrote(
    cache: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_model(directory, weights="int4")
    assert [lean(first).weights_file] == files(cache)
    monkeypatch.setattr(load, "_anew", never)
    second = open_model(directory, weights="int4")
    assert lean(second).weights_file == lean(first).weights_file
    assert torch.equal(logits(first), logits(second))
    assert (first.eos, first.name, first.identity) == (second.eos, second.name, second.identity)
    assert first.generation_config().to_dict() == second.generation_config().to_dict()
    assert second.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    assert (lean(second).dtype, lean(second).device) == (lean(first).dtype, lean(first).device)
    assert (lean(second).nbytes, lean(second).step_nbytes) == (lean(first).nbytes, lean(first).step_nbytes)


def test_kept_weights_say_what_weights_in_memory_say(
    cache: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = logits(open_model(directory, weights="int4"))
    monkeypatch.setenv(SWITCH, "off")
    private = open_model(directory, weights="int4")
    assert lean(private).weights_file is None
    assert lean(private).weights_reason == "FORERUN_PACKED=off says so"
    assert torch.equal(logits(private), mapped)


def test_a_gguf_file_is_kept_with_its_codes(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", kind="Q4_1")
    first = open_model(file, weights="int4")
    assert lean(first).weights_file is not None
    monkeypatch.setattr(load, "_anew", never)
    second = open_model(file, weights="int4")
    assert torch.equal(logits(first), logits(second))
    assert first.identity == second.identity


def test_a_changed_checkpoint_is_packed_anew(cache: Path, directory: Path) -> None:
    before = logits(open_model(directory, weights="int4"))
    other = save_tiny(directory.with_name("other"), seed=1, intermediate_size=64)
    shutil.copy(other / "model.safetensors", directory)
    after = logits(open_model(directory, weights="int4"))
    assert torch.equal(after, logits(open_model(other, weights="int4")))
    assert not torch.equal(after, before)
    assert len(files(cache)) == 2


def test_a_changed_configuration_is_packed_anew(cache: Path, directory: Path) -> None:
    before = logits(open_model(directory, weights="int4"))
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    assert not torch.equal(logits(open_model(directory, weights="int4")), before)


def test_a_damaged_file_is_packed_anew(cache: Path, directory: Path) -> None:
    expected = logits(open_model(directory, weights="int4"))
    (file,) = files(cache)
    whole = file.read_bytes()
    for damage in (whole[:-1], whole[: len(whole) // 2], b"", whole[:-40] + bytes(40), b"\1" + whole[1:]):
        file.unlink()
        file.write_bytes(damage)
        assert torch.equal(logits(open_model(directory, weights="int4")), expected)
        assert file.read_bytes() == whole


@pytest.mark.parametrize("description", [None, 7, {"kind": "Norm", "has": {}}, {"kind": "Nothing", "has": {}}])
def test_a_file_that_describes_something_else_is_packed_anew(cache: Path, directory: Path, description: Any) -> None:
    runner, place = lean(open_model(directory, weights="int4")), keeping(directory).place
    found = place.read()
    assert found is not None
    place.write({**found.about, "decoder": description}, found.tensors)
    again = open_model(directory, weights="int4")
    assert lean(again).weights_file == runner.weights_file
    assert torch.equal(logits(again), finish(Sequence(runner).forward(text(12))).logits)


def keeping(directory: Path) -> kept.Keeping:
    found = kept.keeping_of(directory, "int4", None, torch.device("cpu"), trust_remote_code=False)
    assert isinstance(found, kept.Keeping)
    return found


def test_a_tokenizer_of_ones_own_is_told_in_the_identity(cache: Path, directory: Path) -> None:
    first = open_model(directory, weights="int4")
    for file in directory.glob("tokenizer*"):
        file.unlink()
    without = open_model(directory, weights="int4")
    assert lean(without).weights_file is not None
    assert (without.tokenizer, without.identity.vocabulary) == (None, "")
    given = open_model(directory, weights="int4", tokenizer=tiny_tokenizer())
    assert given.identity == first.identity


def test_a_cache_that_cannot_be_written_is_done_without(
    cache: Path, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache.parent.mkdir()
    cache.write_text("a file in the folder's place")
    opened = open_model(directory, weights="int4")
    assert lean(opened).weights_file is None
    assert f"{cache} can't be written" in lean(opened).weights_reason
    assert logits(opened).isfinite().all()
    assert capfd.readouterr() == ("", "")


def test_small_models_are_not_kept(cache: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LEAST", 16 << 20)
    opened = open_model(directory, weights="int4")
    assert lean(opened).weights_reason.startswith("the model is small (0.")
    assert not cache.exists()


def test_torchs_operations_have_no_packed_weights(
    cache: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(library.SWITCH, "off")
    opened = open_model(directory, weights="int4")
    assert lean(opened).weights_reason == "FORERUN_NATIVE=off says so"
    assert not cache.exists()


def test_what_runs_on_transformers_modules_is_not_kept(cache: Path, directory: Path) -> None:
    assert isinstance(open_model(directory, runner="hf").runner, HFRunner)
    assert isinstance(open_model(tiny_model("llama")).runner, HFRunner)
    assert not cache.exists()


def test_a_model_of_another_family_runs_as_ever(cache: Path, tmp_path: Path) -> None:
    directory = save_tiny(tmp_path / "other", "gpt2")
    assert isinstance(open_model(directory).runner, HFRunner)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ('{"model_type": "gpt2"}', "gpt2 is no family of the lean decoder"),
        ("{}", "its configuration doesn't tell its family"),
        ("[1]", "its configuration doesn't tell its family"),
        ("{", "its configuration doesn't tell its family"),
    ],
)
def test_a_glance_at_the_configuration_tells_families(cache: Path, directory: Path, config: str, reason: str) -> None:
    (directory / "config.json").write_text(config)
    assert kept.keeping_of(directory, "int4", None, torch.device("cpu"), False) == reason


def test_the_text_part_of_a_model_that_sees_counts(cache: Path, directory: Path) -> None:
    (directory / "config.json").write_text('{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}')
    assert isinstance(kept.keeping_of(directory, "int4", None, torch.device("cpu"), False), kept.Keeping)


def test_code_that_comes_with_a_model_and_adapters_are_not_kept(cache: Path, directory: Path) -> None:
    cpu = torch.device("cpu")
    assert kept.keeping_of(directory, "int4", None, cpu, True) == "what the model's own code reads can't be told"
    (directory / "adapter_config.json").write_text("{}")
    assert kept.keeping_of(directory, "int4", None, cpu, False) == "an adapter is merged into them"
    assert "CPUs only" in str(kept.keeping_of(directory, "int4", None, torch.device("meta"), False))


def test_the_floats_are_gone_before_codes_are_packed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    straight = load.lean_from_gguf

    def watched(file: Path, config: Any, weights: str, name: str) -> LeanRunner:
        held.extend(parameter.numel() for model in opened for parameter in model.parameters())
        return straight(file, config, weights, name)

    opened: list[Any] = []
    read = load.read_checkpoint

    def remembered(*arguments: Any, **options: Any) -> Any:
        opened.append(read(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(load, "lean_from_gguf", watched)
    monkeypatch.setattr(load, "read_checkpoint", remembered)
    open_model(write_gguf(tmp_path / "tiny.gguf", kind="Q4_1"), weights="int4")
    assert held
    assert set(held) == {0}


def start(directory: str, gate: Any, answers: Any) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    packed: list[int] = []
    anew = load._anew

    def counted(*arguments: Any) -> Any:
        packed.append(1)
        return anew(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "LEAST", 0)
        patch.setattr(load, "_anew", counted)
        gate.wait()
        opened = open_model(directory, weights="int4")
        answers.put((len(packed), str(lean(opened).weights_file), logits(opened).tolist()))


def test_of_processes_that_start_at_once_one_packs(cache: Path, directory: Path) -> None:
    context = multiprocessing.get_context("fork")
    gate, answers = context.Barrier(3), context.Queue()
    processes = [context.Process(target=start, args=(str(directory), gate, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(count for count, _, _ in told) == [0, 0, 1]
    assert {file for _, file, _ in told} == {str(files(cache)[0])}
    assert told[0][2] == told[1][2] == told[2][2]

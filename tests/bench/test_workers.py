"""The workers of the known peers: transformers itself, and stand-ins for the packages that are not installed here."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import forerun
from forerun.bench.workers import hf_generate, llama_cpp, vllm_engine
from forerun.bench.workers.protocol import Stopwatch
from forerun.testing import END, save_tiny

PROMPT = [104, 101, 108, 108, 111, 32, 104, 101, 108]


def options(mode: str, **settings: Any) -> dict[str, Any]:
    common = {"threads": 1, "dtype": "float32", "context": 64, "eos": [END]}
    return {"mode": mode, "model": "m", "settings": settings, **common}


def answered(answer: Any, ids: list[int], limit: int, eos: tuple[int, ...] = ()) -> dict[str, Any]:
    watch = Stopwatch(limit, eos)
    answer(ids, limit, watch.emit)
    return watch.answer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.mark.parametrize("mode", hf_generate.MODES)
def test_transformers_writes_in_every_mode_what_forerun_writes(folder: Path, mode: str) -> None:
    versions, answer = hf_generate.open_model({**options(mode), "model": str(folder)})
    expected = forerun.load(folder).generate(PROMPT, max_new_tokens=12).ids
    assert tuple(answered(answer, PROMPT, 12)["ids"]) == expected
    assert set(versions) == {"transformers", "torch"}


@pytest.mark.parametrize("wanted", [True, False])
def test_transformers_minds_the_generation_config_where_forerun_does(tmp_path: Path, wanted: bool) -> None:
    place = save_tiny(tmp_path / "penalised")
    (place / "generation_config.json").write_text('{"suppress_tokens": [20, 21, 22], "repetition_penalty": 1.5}')
    opened = {**options("plain"), "model": str(place), "generation_config": wanted}
    _, answer = hf_generate.open_model(opened)
    expected = forerun.load(place).generate(PROMPT, max_new_tokens=12, generation_config=wanted).ids
    assert tuple(answered(answer, PROMPT, 12)["ids"]) == expected


def test_transformers_stops_at_the_end_of_sequence(folder: Path) -> None:
    whole = forerun.load(folder).generate(PROMPT, max_new_tokens=12, ignore_eos=True).ids
    _, answer = hf_generate.open_model({**options("plain"), "model": str(folder), "eos": [whole[4]]})
    assert answered(answer, PROMPT, 12)["ids"] == list(whole[: whole.index(whole[4]) + 1])


def test_transformers_takes_an_exit_layer(folder: Path) -> None:
    _, answer = hf_generate.open_model({**options("early_exit", exit_layer=1), "model": str(folder)})
    assert answered(answer, PROMPT, 8)["ids"] == answered(answer, PROMPT, 8)["ids"]


class FakeLlama:
    """Writes 1, 2, 3, ... and keeps what it read until it is reset."""

    made: list[dict[str, Any]]

    def __init__(self, path: str, **settings: Any) -> None:
        self.kept: list[int] = []
        FakeLlama.made.append({"path": path, **settings})

    def reset(self) -> None:
        self.kept = []

    def generate(self, tokens: list[int], **sampling: Any) -> Iterator[int]:
        assert not self.kept, "the last prompt was not forgotten"
        assert sampling["temp"] == 0
        self.kept = list(tokens)
        number = 0
        while True:
            number += 1
            yield number


@pytest.fixture
def fake_llama(monkeypatch: pytest.MonkeyPatch) -> type[FakeLlama]:
    package = ModuleType("llama_cpp")
    speculative = ModuleType("llama_cpp.llama_speculative")
    FakeLlama.made = []
    package.__dict__.update(Llama=FakeLlama, __version__="0.3")
    speculative.__dict__.update(LlamaPromptLookupDecoding=lambda: "lookup")
    monkeypatch.setitem(sys.modules, "llama_cpp", package)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", speculative)
    return FakeLlama


def test_llama_cpp_stops_at_the_end_and_forgets_the_prompt(fake_llama: type[FakeLlama]) -> None:
    versions, answer = llama_cpp.open_model(options("plain"))
    assert versions == {"llama-cpp-python": "0.3"}
    for _ in range(2):
        assert answered(answer, [7, 8], 9, eos=(4,))["ids"] == [1, 2, 3, 4]
    assert answered(answer, [7, 8], 2)["ids"] == [1, 2]


def test_llama_cpp_runs_under_the_common_conditions(fake_llama: type[FakeLlama]) -> None:
    llama_cpp.open_model(options("plain"))
    llama_cpp.open_model(options("lookup"))
    plain, lookup = fake_llama.made
    assert plain["n_ctx"] == 64
    assert plain["n_threads"] == plain["n_threads_batch"] == 1
    assert (plain["draft_model"], plain["logits_all"]) == (None, False)
    assert (lookup["draft_model"], lookup["logits_all"]) == ("lookup", True)


class FakeEngine:
    """Gives each request's tokens a few more at a time, as a speculating vLLM does."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, list[int], Any]] = []
        self._left: list[list[int]] = []

    def add_request(self, name: str, prompt: dict[str, list[int]], sampling: Any) -> None:
        assert name not in [known for known, _, _ in self.requests]
        self.requests.append((name, prompt["prompt_token_ids"], sampling))
        self._left = [[], [1], [1, 2, 3], [1, 2, 3, 4]]

    def has_unfinished_requests(self) -> bool:
        return bool(self._left)

    def step(self) -> list[Any]:
        tokens = self._left.pop(0)
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens)])] if tokens else []


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made: dict[str, Any] = {"engine": FakeEngine()}

    def make(**settings: Any) -> Any:
        made.update(settings)
        return SimpleNamespace(llm_engine=made["engine"])

    package = ModuleType("vllm")
    package.__dict__.update(LLM=make, SamplingParams=lambda **given: given, __version__="0.32")
    monkeypatch.setitem(sys.modules, "vllm", package)
    for name in vllm_engine.environment(1, {"LD_PRELOAD": ""}):
        monkeypatch.setenv(name, "0")
    return made


def test_vllm_hands_each_token_on_once(fake_vllm: dict[str, Any]) -> None:
    versions, answer = vllm_engine.open_model(options("plain"))
    assert versions == {"vllm": "0.32"}
    for _ in range(2):
        told = answered(answer, PROMPT, 9)
        assert (told["ids"], told["first_tokens"]) == ([1, 2, 3, 4], 1)
    assert [prompt for _, prompt, _ in fake_vllm["engine"].requests] == [PROMPT, PROMPT]


def test_vllm_runs_under_the_common_conditions(fake_vllm: dict[str, Any]) -> None:
    _, answer = vllm_engine.open_model(options("ngram"))
    answered(answer, PROMPT, 9)
    assert fake_vllm["max_model_len"] == 64
    assert fake_vllm["enable_prefix_caching"] is False
    assert fake_vllm["speculative_config"]["method"] == "ngram"
    sampling = fake_vllm["engine"].requests[0][2]
    assert (sampling["temperature"], sampling["max_tokens"], sampling["stop_token_ids"]) == (0.0, 9, [END])


def test_vllm_decodes_plainly_unless_asked_otherwise(fake_vllm: dict[str, Any]) -> None:
    vllm_engine.open_model(options("plain", ngram={"num_speculative_tokens": 3}))
    assert fake_vllm["speculative_config"] is None


def test_vllm_drafts_as_its_mode_says(fake_vllm: dict[str, Any]) -> None:
    vllm_engine.open_model(options("ngram-3"))
    assert fake_vllm["speculative_config"]["num_speculative_tokens"] == 3


def test_vllm_has_as_many_cores_as_there_are_threads_unless_told_otherwise(
    fake_vllm: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    vllm_engine.open_model(options("plain", environment={"VLLM_CPU_KVCACHE_SPACE": "2"}))
    assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "0-0"
    assert os.environ["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert vllm_engine.environment(2, {})["LD_PRELOAD"] == str(tmp_path / "lib" / "libiomp5.so")
    assert vllm_engine.environment(4, {"VLLM_CPU_OMP_THREADS_BIND": "auto"})["VLLM_CPU_OMP_THREADS_BIND"] == "auto"


def test_settings_of_a_peer_reach_it(fake_vllm: dict[str, Any]) -> None:
    vllm_engine.open_model(options("ngram", ngram={"num_speculative_tokens": 3}))
    assert fake_vllm["speculative_config"]["num_speculative_tokens"] == 3

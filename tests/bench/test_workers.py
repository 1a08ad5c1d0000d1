"""The workers of the known peers: transformers itself, and stand-ins for the packages that are not installed here."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import forerun
from forerun.bench.workers import hf_generate, llama_cpp, openvino_pipeline, vllm_engine
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
    versions, answer = hf_generate.open_model({**options(mode), "model": str(folder), "draft": str(folder)})
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


def drafting(folder: Path, mode: str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> list[dict[str, Any]]:
    """What generate was told, and its assistant's settings, for one answer."""
    import transformers

    seen: list[dict[str, Any]] = []
    generate = transformers.GenerationMixin.generate

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        assistant = named.get("assistant_model")
        own = {} if assistant is None else assistant.generation_config.to_dict()
        seen.append({"assisted": assistant is not None, **own})
        return generate(self, *given, **named)

    monkeypatch.setattr(transformers.GenerationMixin, "generate", watched)
    _, answer = hf_generate.open_model({**options(mode, **settings), "model": str(folder), "draft": str(folder)})
    answered(answer, PROMPT, 4)
    return seen


def test_transformers_drafts_with_the_assistant_as_its_mode_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = drafting(folder, "assistant", monkeypatch)[0]
    assert told["assisted"]
    assert {name: told[name] for name in hf_generate.ASSISTING} == hf_generate.ASSISTING


def test_an_assistants_settings_can_be_changed_and_other_modes_have_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = drafting(folder, "assistant", monkeypatch, assistant_generation={"num_assistant_tokens": 7})[0]
    assert told["num_assistant_tokens"] == 7
    assert not drafting(folder, "plain", monkeypatch)[0]["assisted"]


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


def test_llama_cpp_has_no_answers_to_several_prompts(fake_llama: type[FakeLlama]) -> None:
    assert len(llama_cpp.open_model(options("plain"))) == 2


class FakeStreamer:
    pass


class FakePipeline:
    """Writes 1, then 2 and 3 together, then 4 and so on up to its limit, unless it is told to stop."""

    made: list[dict[str, Any]]

    def __init__(self, path: str, device: str, **properties: Any) -> None:
        FakePipeline.made.append({"path": path, "device": device, **properties})

    def generate(self, inputs: Any, config: Any, streamer: Any) -> None:
        FakePipeline.made[-1] |= {"inputs": inputs, "config": dict(vars(config))}
        left = config.max_new_tokens
        for piece in (1, [2, 3], *range(4, 99)):
            if left <= 0 or streamer.write(piece) == "stop":
                break
            left -= 1 if isinstance(piece, int) else len(piece)
        streamer.end()


@pytest.fixture
def fake_openvino(monkeypatch: pytest.MonkeyPatch) -> type[FakePipeline]:
    tensors, package = ModuleType("openvino"), ModuleType("openvino_genai")
    FakePipeline.made = []
    tensors.__dict__.update(Tensor=lambda rows: rows.tolist())
    package.__dict__.update(
        LLMPipeline=FakePipeline,
        GenerationConfig=SimpleNamespace,
        StreamerBase=FakeStreamer,
        StreamingStatus=SimpleNamespace(STOP="stop", RUNNING="running"),
        TokenizedInputs=lambda *given: given,
        __version__="2026.4",
    )
    monkeypatch.setitem(sys.modules, "openvino", tensors)
    monkeypatch.setitem(sys.modules, "openvino_genai", package)
    return FakePipeline


def test_openvino_hands_on_single_and_several_tokens_and_stops_when_told(fake_openvino: type[FakePipeline]) -> None:
    versions, answer = openvino_pipeline.open_model(options("plain"))
    assert versions == {"openvino-genai": "2026.4"}
    told = answered(answer, PROMPT, 9, eos=(5,))
    assert (told["ids"], told["first_tokens"]) == ([1, 2, 3, 4, 5], 1)
    assert answered(answer, PROMPT, 2)["ids"] == [1, 2]
    assert fake_openvino.made[0]["inputs"] == ([PROMPT], [[1] * len(PROMPT)])


def test_openvino_runs_greedily_under_the_common_conditions(fake_openvino: type[FakePipeline]) -> None:
    for mode in openvino_pipeline.MODES:
        _, answer = openvino_pipeline.open_model(options(mode))
        answered(answer, PROMPT, 5)
    plain, lookup = fake_openvino.made
    assert (plain["path"], plain["device"], plain["INFERENCE_NUM_THREADS"]) == ("m", "CPU", 1)
    assert plain["config"]["do_sample"] is False
    assert plain["config"]["apply_chat_template"] is False
    assert (plain["config"]["max_new_tokens"], plain["config"]["stop_token_ids"]) == (5, {END})
    assert "prompt_lookup" not in plain
    assert lookup["prompt_lookup"] is True
    assert (lookup["config"]["num_assistant_tokens"], lookup["config"]["max_ngram_size"]) == (3, 3)


@pytest.mark.parametrize(
    ("dtype", "hint", "kept"),
    [("float32", "f32", "f32"), ("bfloat16", "bf16", None), ("float16", "f16", None), ("auto", None, None)],
)
def test_openvino_computes_in_the_wanted_format(dtype: str, hint: str | None, kept: str | None) -> None:
    told = openvino_pipeline.properties({**options("plain"), "dtype": dtype})
    assert (told.get("INFERENCE_PRECISION_HINT"), told.get("KV_CACHE_PRECISION")) == (hint, kept)


def test_openvinos_own_settings_come_last(fake_openvino: type[FakePipeline]) -> None:
    own = {"properties": {"KV_CACHE_PRECISION": "u8"}, "generation": {"max_ngram_size": 2}}
    _, answer = openvino_pipeline.open_model(options("lookup", **own))
    answered(answer, PROMPT, 5)
    assert fake_openvino.made[0]["KV_CACHE_PRECISION"] == "u8"
    assert fake_openvino.made[0]["config"]["max_ngram_size"] == 2


@pytest.mark.parametrize(
    ("worker", "package", "said"),
    [
        (openvino_pipeline, "openvino_genai", r"no OpenVINO GenAI here .*make peers.*--peer-python openvino=PATH"),
        (vllm_engine, "vllm", r"no vLLM here .*make peers.*--peer-python vllm=PATH"),
        (llama_cpp, "llama_cpp", r"no llama-cpp-python here .*make peers.*--peer-python llama.cpp=PATH"),
    ],
)
def test_an_engine_that_is_not_there_says_how_to_get_it(
    worker: Any, package: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LD_PRELOAD", *vllm_engine.environment(1, {})):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RuntimeError, match=said):
        worker.open_model(options("plain"))


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
    versions, answer, _ = vllm_engine.open_model(options("plain"))
    assert versions == {"vllm": "0.32"}
    for _ in range(2):
        told = answered(answer, PROMPT, 9)
        assert (told["ids"], told["first_tokens"]) == ([1, 2, 3, 4], 1)
    assert [prompt for _, prompt, _ in fake_vllm["engine"].requests] == [PROMPT, PROMPT]


def test_vllm_runs_under_the_common_conditions(fake_vllm: dict[str, Any]) -> None:
    _, answer, _ = vllm_engine.open_model(options("ngram"))
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


def test_vllm_drafts_with_the_draft_model_that_it_is_given(fake_vllm: dict[str, Any]) -> None:
    vllm_engine.open_model({**options("draft-model", draft_model={"num_speculative_tokens": 2}), "draft": "/d"})
    config = {"method": "draft_model", "model": "/d", "num_speculative_tokens": 2}
    assert fake_vllm["speculative_config"] == config


class ManyAtOnce:
    """Each step gives every running request its prompt's first token again, up to three; the last begun is told first."""

    def __init__(self) -> None:
        self.running: dict[str, tuple[int, int]] = {}
        self.most = 0

    def add_request(self, name: str, prompt: dict[str, list[int]], sampling: Any) -> None:
        self.running = {name: (prompt["prompt_token_ids"][0], 0), **self.running}
        self.most = max(self.most, len(self.running))

    def step(self) -> list[Any]:
        outputs = []
        for name, (token, done) in list(self.running.items()):
            self.running[name] = token, done + 1
            finished = done == 2
            if finished:
                del self.running[name]
            tokens = [SimpleNamespace(token_ids=[token] * (done + 1))]
            outputs.append(SimpleNamespace(request_id=f"{name}-c0ffee", finished=finished, outputs=tokens))
        return outputs


def test_vllm_keeps_as_many_prompts_in_flight_as_wanted_and_tells_each_its_own_answer(
    fake_vllm: dict[str, Any],
) -> None:
    fake_vllm["engine"] = many = ManyAtOnce()
    _, _, answer_all = vllm_engine.open_model({**options("plain"), "at_once": 2})
    assert fake_vllm["max_num_seqs"] == 2
    for _ in range(2):
        assert answer_all([[5], [6], [7]], 2, 3) == [[5] * 3, [6] * 3, [7] * 3]
    assert many.most == 2


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

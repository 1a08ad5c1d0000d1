from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.cli.bench import split
from forerun.engine.engine import load
from forerun.engine.system.file import write_system
from forerun.engine.system.value import System, target_of
from forerun.testing import END, save_tiny, tiny_model

from .conftest import Ran

Call = Callable[..., Ran]
ECHO = Path(__file__).parents[1] / "bench" / "echo_worker.py"


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.jsonl"
    lines = [
        {"question_id": n, "category": kind, "turns": [f"{kind} {n} {n}"]}
        for n, kind in enumerate(("qa", "math", "qa"))
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture
def short(tiny: str, suite: Path) -> tuple[Any, ...]:
    return tiny, "--suite", suite, "--max-new-tokens", 8, "--threads", 1


def test_a_benchmark_shows_every_method_and_category(forerun: Call, short: tuple[Any, ...]) -> None:
    ran = forerun("bench", *short)
    assert ran.status == 0
    for shown in ("plain", "default", "mt_bench", "qa", "3/3", "3 prompts, up to 8 tokens"):
        assert shown in ran.out


def test_everything_measured_is_written_with_its_conditions(
    forerun: Call, short: tuple[Any, ...], tmp_path: Path
) -> None:
    file = tmp_path / "new" / "result.json"
    forerun("bench", *short, "--methods", "lookup,self", "--json", file)
    told = json.loads(file.read_text())
    assert [method["name"] for method in told["methods"]] == ["plain", "lookup", "self"]
    assert set(told["methods"][0]["categories"]) == {"qa", "mt_bench"}
    assert told["suite"]["prompts"] == 3
    assert told["threads"] == 1
    assert {"hardware", "versions", "date", "command", "dtype", "max_new_tokens"} <= set(told)


def test_fewer_prompts_can_be_taken(forerun: Call, short: tuple[Any, ...], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    forerun("bench", *short, "--per-category", 1, "--categories", "qa", "--methods", "plain", "--json", file)
    assert [row["id"] for row in json.loads(file.read_text())["samples"]["plain"]] == ["0"]


def test_later_turns_can_be_asked_too(forerun: Call, tiny: str, tmp_path: Path) -> None:
    talk = tmp_path / "talk.jsonl"
    talk.write_text(json.dumps({"question_id": 5, "category": "agentic", "turns": ["qa 1 1", "qa 2 2"]}))
    short = (tiny, "--suite", talk, "--max-new-tokens", 8, "--threads", 1, "--json", tmp_path / "told.json")
    for flags, asked in (((), ["5"]), (("--all-turns",), ["5.1", "5.2"])):
        assert forerun("bench", *short, *flags).status == 0
        told = json.loads((tmp_path / "told.json").read_text())
        assert [row["id"] for row in told["samples"]["default"]] == asked
        assert (told["suite"]["prompts"], told["suite"]["all_turns"]) == (len(asked), bool(flags))


def test_a_system_file_takes_part_under_its_name(forerun: Call, short: tuple[Any, ...], tmp_path: Path) -> None:
    system = tmp_path / "exit2.json"
    system.write_text('{"drafter": {"name": "self", "exit_layer": 2}, "policy": {"name": "fixed", "k": 2}}')
    ran = forerun("bench", *short, "--methods", system)
    assert ran.status == 0
    assert "exit2" in ran.out


def test_a_system_takes_part_and_says_how_the_model_is_opened(
    forerun: Call, tiny: str, short: tuple[Any, ...], tmp_path: Path
) -> None:
    engine = load(tiny, runner="hf")
    tuned = System("tuned", "lookup", {}, "fixed", {"k": 2}, target_of(engine, tiny, runner="hf"), {"threads": 99})
    write_system(tuned, tmp_path / "s.json")
    ran = forerun("bench", *short, "--methods", "plain", "--system", tmp_path / "s.json", "--json", tmp_path / "r.json")
    told = json.loads((tmp_path / "r.json").read_text())

    assert [method["name"] for method in told["methods"]] == ["plain", "tuned"]
    assert told["runner"] == "HFRunner"
    assert "threads is 1 here and 99 there" in ran.err


def test_a_method_that_was_tuned_for_another_model_is_refused(
    forerun: Call, short: tuple[Any, ...], tmp_path: Path
) -> None:
    other = target_of(load(tiny_model("llama")), "another")
    write_system(System("tuned", "lookup", target=other), tmp_path / "s.json")
    ran = forerun("bench", *short, "--methods", tmp_path / "s.json")

    assert ran.status == 2
    assert "the system 'tuned' was tuned for another, which is another model: vocab_size is" in ran.err


def test_plots_are_written_where_they_are_wanted(forerun: Call, short: tuple[Any, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran = forerun("bench", *short, "--plots", tmp_path / "plots")
    assert ran.status == 0
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        "speedup.png",
        "tokens_per_round.png",
        "time.png",
    }


def test_a_peer_takes_part_and_one_that_fails_is_named(forerun: Call, short: tuple[Any, ...], tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('not built for this machine')\n")
    ran = forerun("bench", *short, "--peers", f"{ECHO}:plain,{broken}")
    assert ran.status == 0
    assert "echo_worker" in ran.out
    assert "Other engines, each with 1 threads" in ran.out
    assert "the prompt itself" in ran.out
    assert "Not run: peer broken ended" in ran.out
    assert "not built for this machine" in ran.out


def test_a_peer_runs_on_a_named_model_with_its_own_settings(
    forerun: Call, short: tuple[Any, ...], tiny: str, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    settings = ("--peer-model", f"other={tiny}", "--peer-setting", 'echo_worker.behaviour={"lookup": "raise"}')
    ran = forerun("bench", *short, "--peers", f"{ECHO}@other", *settings, "--json", file)
    assert ran.status == 0
    told = json.loads(file.read_text())
    assert told["methods"][-1]["name"] == "echo_worker@other:plain"
    assert told["methods"][-1]["settings"] == {"behaviour": {"lookup": "raise"}}
    assert "no memory left" in told["failed"]["echo_worker@other:lookup"]


def test_prompts_at_once_have_a_table_of_their_own(forerun: Call, short: tuple[Any, ...], tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    ran = forerun("bench", *short, "--methods", "plain", "--concurrency", "1,2", "--json", file)
    assert ran.status == 0
    assert "Prompts at once" in ran.out
    assert [row["at_once"] for row in json.loads(file.read_text())["loads"]] == [1, 2]


def test_a_peer_gets_the_draft_that_was_named(forerun: Call, short: tuple[Any, ...], tmp_path: Path) -> None:
    worker = tmp_path / "assisted.py"
    opening = (
        "def open_model(options):\n    return {'draft': options['draft']}, lambda ids, new, emit: emit(ids) and None\n"
    )
    worker.write_text(f"MODES, MODEL, DRAFTS = ('plain', 'assistant'), 'hf', ('assistant',)\n{opening}")
    file = tmp_path / "r.json"
    peers = ("--peers", f"{worker}:assistant", "--peer-draft", "hf=/drafts/small", "--json", file)
    assert forerun("bench", *short, "--methods", "plain", *peers).status == 0
    told = json.loads(file.read_text())["methods"][-1]
    assert (told["versions"], told["draft"]) == ({"draft": "/drafts/small"}, "small (bfloat16)")


def test_a_peers_python_can_be_named(forerun: Call, short: tuple[Any, ...]) -> None:
    ran = forerun("bench", *short, "--peers", f"{ECHO}:plain", "--peer-python", "echo_worker=/no/such/python")
    assert "can't be started with /no/such/python" in ran.out


def test_predictions_are_calibrated_and_shown(
    forerun: Call, short: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    monkeypatch.setattr("forerun.bench.calibrate.ROWS", (1, 2, 8))
    file = tmp_path / "result.json"
    forerun("bench", *short, "--predict", "--json", file)
    plain, default = json.loads(file.read_text())["methods"]
    assert plain["predicted_speedup"] == 1
    assert default["predicted_speedup"] > 0
    assert "predicted_speedup" in default["categories"]["qa"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--methods", "magic"), "unknown method 'magic'"),
        (("--peers", "ollama"), "unknown peer 'ollama'"),
        (("--categories", "poetry"), "no category 'poetry'"),
        (("--per-category", "0"), "at least 1, got 0"),
        (("--peer-python", "vllm=/usr/bin/python3"), "known here: none, as no peer takes part"),
        (("--peer-model", "q4_0=/m.gguf"), "known here: gguf, hf"),
        (("--peer-draft", "hf=/d"), "known here: none, as no peer takes part"),
        (("--concurrency", "1,many"), "--concurrency takes numbers from 1 on"),
        (("--concurrency", "1,8"), "8 prompts can't be in flight where there are 3"),
        (("--peer-setting", "vllm.ngram={}"), "known here: none, as no peer takes part"),
        (("--peer-dtype", "int3", "--peers", "transformers"), "unknown dtype int3"),
        (("--threads", "0"), "--threads must be 1 to "),
    ],
)
def test_what_can_not_be_measured_is_refused_in_one_sentence(
    forerun: Call, short: tuple[Any, ...], given: tuple[str, ...], sentence: str
) -> None:
    ran = forerun("bench", *short, *given)
    assert ran.status == 2
    assert sentence in ran.err
    assert not ran.out


def test_missing_matplotlib_is_said_before_anything_is_measured(
    forerun: Call, short: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forerun.plotting.find_spec", lambda name: None)
    ran = forerun("bench", *short, "--plots", tmp_path)
    assert ran.status == 2
    assert "pip install 'forerun[plot]'" in ran.err
    assert "opening" not in ran.err


def test_lists_are_split_at_commas() -> None:
    assert split("a, b,,c") == ["a", "b", "c"]
    assert split("") == []


def test_a_checkpoints_generation_config_is_told_and_can_be_left_out(
    forerun: Call, suite: Path, tmp_path: Path
) -> None:
    path = save_tiny(tmp_path / "penalised")
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": END, "suppress_tokens": list(range(99))}))
    given = (path, "--suite", suite, "--max-new-tokens", 6, "--threads", 1, "--per-category", 1)
    files = tmp_path / "own.json", tmp_path / "bare.json"
    for file, flags in zip(files, ((), ("--no-generation-config",)), strict=True):
        assert forerun("bench", *given, "--json", file, *flags).status == 0
    own, bare = (json.loads(file.read_text()) for file in files)

    assert (own["generation_config"], bare["generation_config"]) == (["suppress_tokens"], [])

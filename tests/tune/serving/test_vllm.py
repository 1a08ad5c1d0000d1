from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from forerun.engines.vllm.settings import chosen_system
from forerun.errors import UnsupportedOption
from forerun.tune.serving.knobs import OFF, Wanted
from forerun.tune.serving.serving_engine import Launch
from forerun.tune.serving.vllm import Vllm

VLLM = Vllm()
LAUNCH = Launch("/bin/vllm", "model", 8, 2048, None, "bfloat16", ("--seed", "1"))


def config(command: list[str], flag: str = "--speculative-config") -> Any:
    return json.loads(command[command.index(flag) + 1])


def test_off_is_served_without_speculation() -> None:
    command = VLLM.command(LAUNCH, OFF)

    assert command[:3] == ["/bin/vllm", "serve", "model"]
    assert command[3:] == [*("--max-num-seqs", "8", "--max-model-len", "2048", "--dtype", "bfloat16", "--seed", "1")]


def test_a_python_serves_by_its_module() -> None:
    command = VLLM.command(Launch("/bin/python3", "model"), OFF)

    assert command[:5] == ["/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "model"]


@pytest.mark.parametrize(("status", "started"), [(0, "vllm"), (1, "python")])
def test_where_vllms_command_line_cannot_start_its_python_does(tmp_path: Path, status: int, started: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {status}\n")
    python.chmod(0o755)

    assert VLLM.startable(str(tmp_path / "vllm")) == str(tmp_path / started)


def test_every_method_is_tried_first_the_simplest_ones_before() -> None:
    first = VLLM.first(Wanted((), ("draft",)))

    assert [one.method for one in first] == ["ngram", "draft-model", "forerun"]
    assert [one.method for one in VLLM.first(Wanted())] == ["ngram", "forerun"]
    assert VLLM.first(Wanted(("forerun",), ("draft",))) == first[2:]
    assert config(VLLM.command(LAUNCH, first[1])) == {
        "method": "draft_model",
        "model": "draft",
        "num_speculative_tokens": 3,
    }


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UnsupportedOption, match="unknown method 'eagle' to tune vllm by; known: ngram, draft-model, forerun"
    ):
        VLLM.first(Wanted(("eagle",)))


def test_beside_a_setting_lie_others_of_its_method_each_once() -> None:
    for one in VLLM.first(Wanted((), ("draft",))):
        near = VLLM.near(one)
        assert len(near) >= 4
        assert {other.method for other in near} == {one.method}
        assert len({other.name for other in (one, *near)}) == len(near) + 1


def test_the_proposer_is_told_a_method_that_it_takes_and_keeps_no_answers() -> None:
    proposer = VLLM.first(Wanted(("forerun",)))[0]
    for one in (proposer, *VLLM.near(proposer)):
        command = VLLM.command(LAUNCH, one)
        assert config(command)["model"] == "forerun.engines.vllm.Proposer"
        system = chosen_system(config(command, "--additional-config"))
        assert system.drafter_options.get("history", 0) == 0


def test_lengths_by_load_become_vllms_table() -> None:
    three = VLLM.first(Wanted(("ngram",)))[0]
    one = next(other for other in VLLM.near(three) if other.family == three.family and "1 tokens" in other.name)

    merged = VLLM.merged({1: three, 8: one, 64: OFF})

    assert merged is not None
    assert merged.name == "ngram 2..4, 3 tokens at 1, 1 tokens at 8, 0 tokens at 64"
    assert config(VLLM.command(LAUNCH, merged)) == {
        **three.settings["speculative_config"],
        "num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 22, 1], [23, 64, 0]],
    }


def test_the_proposer_and_different_methods_have_no_table() -> None:
    ngram, proposer = VLLM.first(Wanted())

    assert VLLM.merged({1: proposer, 8: OFF}) is None
    assert VLLM.merged({1: ngram, 8: proposer}) is None
    assert VLLM.merged({1: OFF}) is None


def test_a_draft_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    for name, size in (("target", 100), ("draft", 90)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"vocab_size": size}))

    with pytest.raises(UnsupportedOption, match=r"has a vocabulary of 90 tokens and .*target one of 100"):
        VLLM.check(Launch("vllm", str(tmp_path / "target")), Wanted((), (str(tmp_path / "draft"),)))


def test_a_draft_model_whose_tokens_have_other_numbers_is_refused(tmp_path: Path) -> None:
    for name, tokens in (("target", {"a": 0, "b": 1}), ("draft", {"a": 1, "b": 0})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"vocab_size": 2}')
        (tmp_path / name / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}}))
    target, draft = str(tmp_path / "target"), str(tmp_path / "draft")

    with pytest.raises(UnsupportedOption, match=r"another vocabulary than .*target: its tokens have other numbers"):
        VLLM.check(Launch("vllm", target), Wanted((), (draft,)))
    VLLM.check(Launch("vllm", target), Wanted((), (target,)))


@pytest.mark.parametrize(("said", "refused"), [("0.31.2", True), ("0.32.0", False), ("1.0.0", False)])
def test_an_older_vllm_is_refused(tmp_path: Path, said: str, refused: bool) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {said}\n")
    python.chmod(0o755)
    program = str(tmp_path / "vllm")

    if not refused:
        assert VLLM.version(program) == said
        return
    with pytest.raises(UnsupportedOption, match=r"is vLLM 0\.31\.2, and forerun tunes it from 0\.32 on; update it"):
        VLLM.version(program)


def test_a_python_without_forerun_lacks_the_proposer(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)

    assert VLLM.lacking(str(tmp_path / "vllm")) == {
        "forerun": f"{python} has no forerun; install it there: pip install --no-deps forerun"
    }
    python.write_text("#!/bin/sh\nexit 0\n")
    assert VLLM.lacking(str(tmp_path / "vllm")) == {}


def test_threads_are_bound_where_they_are_given() -> None:
    told = VLLM.environment(Launch(sys.executable, "model", threads=2))

    assert (told["VLLM_CPU_OMP_THREADS_BIND"], told["OMP_NUM_THREADS"]) == ("nobind", "2")
    assert "VLLM_CPU_OMP_THREADS_BIND" not in VLLM.environment(Launch(sys.executable, "model"))

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.bench import compare as module
from forerun.bench.comparison import Comparison
from forerun.bench.difference import Difference
from forerun.cli.compare import LENGTH, own_questions, verdict
from forerun.testing import END, save_tiny

from .conftest import Ran

Call = Callable[..., Ran]
_SIDE: Any = SimpleNamespace(repeats=((SimpleNamespace(ids=((1, 2),)),),))
QUICK = ("--max-new-tokens", "6", "--repeats", "1")


def test_json_holds_figures_method_and_conditions(forerun: Call, tiny: str) -> None:
    flags = ("--drafter", "self", "--exit-layer", "2", "--policy", "fixed", "--k", "3")
    ran = forerun("compare", tiny, *QUICK, *flags, "--dtype", "float32", "--json")
    told = json.loads(ran.out)

    assert ran.status == 0, ran.err
    assert told["identical"] is True
    assert told["method"] == "self exit_layer=2, fixed k=3"
    assert (told["model"], told["dtype"], told["repeats"]) == ("tiny", "float32", 1)
    assert told["draft_cost_ratio"] > 0
    assert set(told) >= {
        "speedup",
        "plain_tokens_per_second",
        "speculative_tokens_per_second",
        "tokens_per_round",
        "discard_rate",
        "verification_rate",
        "predicted_speedup",
        "versions",
        "hardware",
        "threads",
        "command",
    }


def test_the_table_says_the_same_to_a_reader(forerun: Call, tiny: str) -> None:
    out = forerun("compare", tiny, *QUICK).out

    for word in ("tokens/s", "speed-up", "tokens per round", "acceptance", "predicted", "auto, cost"):
        assert word in out
    assert "Outputs: equal, token for token." in out
    assert "float32" in out


def test_plain_decoding_can_be_compared_with_itself(forerun: Call, tiny: str) -> None:
    ran = forerun("compare", tiny, *QUICK, "--drafter", "none")

    assert ran.status == 0
    assert "nothing drafted" in ran.out


def test_prompts_come_from_a_file(forerun: Call, tiny: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"turns": ["b", "c"]}\n{"messages": [{"role": "user", "content": "d"}]}\n')
    told = json.loads(forerun("compare", tiny, *QUICK, "--prompts", file, "--json").out)

    assert (told["questions"], told["decoded_tokens"]) == (3, 4 * 5)


def test_forerun_brings_prompts_of_both_kinds() -> None:
    assert len(own_questions("repeating")) >= 2
    assert len(own_questions("repeating", "open")) == len(own_questions("repeating")) + len(own_questions("open"))


@pytest.fixture
def parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every comparison finds that the outputs part where plain decoding was sure."""
    measure = module.compare

    def wrong(*args: Any, **options: Any) -> list[Comparison]:
        return [replace(one, difference=Difference(0, 0, 2, 5, 6, 3.0)) for one in measure(*args, **options)]

    monkeypatch.setattr(module, "compare", wrong)


@pytest.mark.usefixtures("parted")
def test_a_difference_that_rounding_does_not_explain_ends_with_status_1(forerun: Call, tiny: str) -> None:
    ran = forerun("compare", tiny, *QUICK)

    assert ran.status == 1
    assert "DIFFERENT at question 1, turn 1, token 3" in ran.out
    assert "report this" in ran.err


@pytest.mark.usefixtures("parted")
def test_a_difference_stands_in_the_json(forerun: Call, tiny: str) -> None:
    ran = forerun("compare", tiny, *QUICK, "--json")
    told = json.loads(ran.out)

    assert (ran.status, told["identical"], told["verdict"]) == (1, False, "bug")
    assert told["first_difference"]["margin"] == 3


@pytest.mark.parametrize(
    ("margin", "changes", "words"),
    [
        (0.25, {"rounding_margin": 0.5}, "a near-tie (plain decoding preferred its token there by 0.25)"),
        (0.25, {"sampled": True}, "drawn drafts keep the distribution of the output"),
        (math.inf, {}, "DIFFERENT"),
    ],
)
def test_a_verdict_is_told_in_words(margin: float, changes: dict[str, Any], words: str) -> None:
    given = {"sampled": False, "rounding_margin": 0.0, **changes}
    found = Comparison(_SIDE, _SIDE, Difference(0, 0, 2, 5, 6, margin), **given)

    assert words in verdict(found)


def test_a_checkpoints_generation_config_acts_on_both_sides_and_can_be_left_out(forerun: Call, tmp_path: Path) -> None:
    path = save_tiny(tmp_path / "penalised", max_position_embeddings=1024)
    fields = {"eos_token_id": END, "repetition_penalty": 1.5, "num_beams": 4, "max_new_tokens": 3}
    (path / "generation_config.json").write_text(json.dumps(fields))
    refused = forerun("compare", path, *QUICK)
    assert (refused.status, "num_beams=4" in refused.said) == (2, True)
    assert json.loads(forerun("compare", path, *QUICK, "--json", "--no-generation-config").out)["identical"]

    (path / "generation_config.json").write_text(json.dumps({**fields, "num_beams": 1}))
    assert json.loads(forerun("compare", path, *QUICK, "--dtype", "float32", "--json").out)["identical"]


def test_texts_are_measured_to_the_same_length_whatever_the_checkpoint_says() -> None:
    assert LENGTH == {"max_new_tokens": 128}


def test_a_comparison_with_sample_is_a_sampled_one(forerun: Call, tiny: str) -> None:
    assert json.loads(forerun("compare", tiny, *QUICK, "--json", "--sample").out)["verdict"] in ("sampled", "equal")

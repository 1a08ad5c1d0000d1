from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.cli import run
from forerun.cli.tune.rules import rule_of
from forerun.testing import save_tiny
from forerun.traces.read import read_trace

from ..conftest import Ran

Call = Callable[..., Ran]
PROMPTS = [{"category": "qa" if n % 2 else "rag", "prompt": f"hello {n} hello {n}"} for n in range(6)]
SHORT = ("--max-new-tokens", 14, "--depth", 4, "--top", 3)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("prompts") / "p.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in PROMPTS))
    return file


@pytest.fixture(scope="module")
def made(tiny: str, prompts: Path) -> Path:
    file = prompts.with_name("trace.jsonl")
    flags = ("--prompts", prompts, "--drafter", "self", "--exit-layer", 3, "-o", file, *SHORT)
    assert run(["trace", tiny, *map(str, flags)]) == 0
    return file


@pytest.fixture
def traced(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "trace.jsonl"))


def test_a_trace_says_what_it_was_made_with_and_goes_on(forerun: Call, tiny: str, prompts: Path, traced: Path) -> None:
    lines = [json.loads(line) for line in traced.read_text().splitlines()]

    header = lines[0]
    assert (header["drafter"], header["drafter_options"], header["depth"]) == ("self", {"exit_layer": 3}, 4)
    assert {"hardware", "threads", "versions", "date", "prompts", "weights"} <= set(header["about"])
    assert [cost["plan"] for cost in header["costs"]["costs"]] == ["full", "draft self", "read self"]
    assert len(lines) == 1 + len(PROMPTS)
    again = forerun(
        "trace", tiny, "--prompts", prompts, "--drafter", "self", "--exit-layer", 3, "-o", traced, *SHORT, "--json"
    )
    assert json.loads(again.out)["new"] == 0
    assert "6 prompts, 6 of them traced before" in again.err


def test_parts_of_a_prompts_file_are_traced_apart_and_without_costs_if_asked(
    forerun: Call, tiny: str, prompts: Path, tmp_path: Path
) -> None:
    flags = ("--per-category", 1, "--skip", 2, "--cost-prompts", 0, "--max-prompt", 900, "--hidden", "--batch", 2)
    file = tmp_path / "part.jsonl"
    ran = forerun(
        "trace", tiny, "--prompts", prompts, "--drafter", "self", "--exit-layer", 2, "-o", file, *SHORT, *flags
    )

    assert ran.status == 0, ran.err
    assert "2 answers, 2 of them new" in ran.out
    assert json.loads(file.read_text().splitlines()[0])["costs"] is None
    assert len(list((tmp_path / "part.jsonl.hidden").iterdir())) == 2
    ran = forerun("simulate", file)
    assert ran.status == 2
    assert "holds no measured costs: take c=0.1, say" in ran.said
    assert forerun("simulate", file, "--costs", "c=0.1").status == 0


def test_a_policy_is_replayed_with_the_best_fixed_length_and_the_oracle_beside(forerun: Call, traced: Path) -> None:
    flags = ("--policy", "threshold", "--confidence", 0.2, "--max-steps", 4, "--costs", "c=0.1")
    told = json.loads(forerun("simulate", traced, *flags, "--json").out)

    assert sorted(told["policy"].split()) == ["confidence=0.2", "max_steps=4", "threshold"]
    assert told["answers"] == len(PROMPTS)
    assert told["speedup"] <= told["oracle"]["speedup"]
    assert 0 <= told["best_fixed"]["k"] <= 4
    assert told["tokens_per_second"] is None
    out = forerun("simulate", traced, "--policy", "fixed", "--k", 2).out
    for shown in ("fixed k=2", "best fixed length", "oracle", "costs: calibrated", "tokens/s"):
        assert shown in out


def test_of_a_trace_of_trees_it_is_said_where_they_beat_the_chain(
    forerun: Call, tiny: str, prompts: Path, tmp_path: Path
) -> None:
    file = tmp_path / "tree.jsonl"
    flags = ("--drafter", "tree", "--of", "self", "--exit-layer", 3, "--n", 3, "--min-confidence", 0, "--budget", 9)
    assert forerun("trace", tiny, "--prompts", prompts, *flags, "-o", file, *SHORT).status == 0

    costs = "c=0.1 rows=0.02"
    told = json.loads(forerun("simulate", file, "--policy", "fixed", "--k", 2, "--costs", costs, "--json").out)
    assert told["costs"] == costs
    assert told["drafted_per_round"] > 2, "levels of a tree, not a chain's two tokens"
    assert told["chain"]["best_fixed"]["drafted_per_round"] <= told["chain"]["best_fixed"]["k"]
    even = told["beats_chain"]
    assert (even["c"], even["rows"]) == (0.1, 0.02)
    wins = told["best_fixed"]["speedup"] > max(told["chain"]["best_fixed"]["speedup"], 1) + 1e-9
    assert any(low < 0.1 < high for low, high in even["over_c"]) == wins

    out = forerun("simulate", file, "--policy", "fixed", "--k", 2).out
    for shown in ("tree, fixed k=2", "tree, oracle", "chain, best fixed length", "rows verified", "At c="):
        assert shown in out
    assert "costs: calibrated" in out
    ran = forerun("policies", "compare", file, "--measure", tiny)
    assert ran.status == 2
    assert "holds trees; trace the drafter that they branch" in ran.said


def test_an_unfinished_trace_is_replayed_with_a_note(forerun: Call, traced: Path) -> None:
    traced.write_text("".join(traced.read_text().splitlines(keepends=True)[:4]))

    ran = forerun("simulate", traced)
    assert ran.status == 0
    assert "holds 3 of 6 answers" in ran.err


def test_rules_are_compared_and_timed_and_drawn(forerun: Call, tiny: str, traced: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "report"
    flags = ("--measure", tiny, "--best", 1, "--timed-prompts", 2, "--repeats", 1, "--output", folder)
    ran = forerun("policies", "compare", traced, *flags)

    assert ran.status == 0, ran.err
    for shown in ("costs: calibrated", "c=0.3", "heuristic", "oracle", "Best rule", "Worst difference between"):
        assert shown in ran.out
    assert sorted(file.name for file in folder.iterdir()) == [
        "measured.png",
        "pareto.png",
        "report.json",
        "speedups.png",
    ]
    told = json.loads((folder / "report.json").read_text())
    assert len(told["timed"]) == 2
    assert told["timed"][0]["label"].startswith("fixed k=")
    assert [one["costs"] for one in told["simulated"]] == ["calibrated", "c=0.05", "c=0.1", "c=0.2", "c=0.3"]
    assert told["trace"]["drafter"] == "self"
    assert told["trace"]["costs"] != read_trace(traced).header.as_dict()["costs"], "costs are measured with the times"
    assert "hardware" in told


def test_variants_are_chosen_on_another_trace(forerun: Call, traced: Path) -> None:
    flags = ("--choose-on", traced, "--rule", "threshold confidence=0.1|0.9 max_steps=4", "--rule", "heuristic")
    told = json.loads(forerun("policies", "compare", traced, *flags, "--costs", "c=0.1,c=0.4", "--json").out)

    assert len(told["simulated"]) == 2
    for under in told["simulated"]:
        assert len(under["rules"]) == 2
        assert under["chosen_fixed"]["k"] == under["best_fixed"]["k"]
    assert told["timed"] == []


def test_policies_alone_are_listed(forerun: Call) -> None:
    assert forerun("policies").status == 0
    assert "compare" not in [one["name"] for one in json.loads(forerun("policies", "--json").out)]


def test_a_rule_has_a_variant_for_every_choice_of_values() -> None:
    variants = rule_of("threshold confidence=0.4|0.6 max_steps=4|8")

    assert [variant.options for variant in variants] == [
        {"confidence": confidence, "max_steps": steps} for confidence in (0.4, 0.6) for steps in (4, 8)
    ]
    assert rule_of("heuristic")[0].label == "heuristic"
    assert rule_of("bounded inner=threshold confidence=0.5")[0].options == {"inner": "threshold", "confidence": 0.5}


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("", "unknown policy ''"),
        ("magic", "unknown policy 'magic'; known: "),
        ("threshold power=3", "policy 'threshold' has no option 'power'; its options: confidence, max_steps"),
        ("threshold confidence", "name=value or name=value|value, got 'confidence'"),
        ("threshold confidence=a", "confidence takes a number, got 'a'"),
        ("threshold confidence=7", "confidence must be in [0, 1], got 7.0"),
        ("disco", "needs option 'classifier'"),
    ],
)
def test_a_rule_that_can_not_be_meant_is_refused(forerun: Call, traced: Path, rule: str, sentence: str) -> None:
    ran = forerun("policies", "compare", traced, "--rule", rule)

    assert ran.status == 2
    assert sentence in ran.said
    assert len(ran.said.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--depth", 0), "--depth must be at least 1, got 0"),
        (("--skip", -1), "--skip must be at least 0, got -1"),
        (("--skip", 9), "holds no prompt of at most 1024 tokens after the first 9"),
        (("--k", 3), "a trace is made without a policy, so it takes no k"),
        (("--drafter", "none"), "drafter 'none' drafts nothing to trace"),
        (("--drafter", "lookup", "--hidden"), "no hidden states to keep; trace without --hidden"),
        (("--drafter", "magic"), "unknown drafter 'magic'"),
    ],
)
def test_what_can_not_be_traced_is_refused(
    forerun: Call, tiny: str, prompts: Path, tmp_path: Path, flags: tuple[object, ...], sentence: str
) -> None:
    given = flags if "--drafter" in flags else ("--drafter", "self", "--exit-layer", 2, *flags)
    ran = forerun(
        "trace", tiny, "--prompts", prompts, "-o", tmp_path / "t.jsonl", *map(str, given), "--cost-prompts", 0
    )

    assert ran.status == 2
    assert sentence in ran.said


def test_bad_traces_are_refused_in_one_sentence(
    forerun: Call, tiny: str, prompts: Path, traced: Path, tmp_path: Path
) -> None:
    cut, empty, other = tmp_path / "cut.jsonl", tmp_path / "empty.jsonl", tmp_path / "other.jsonl"
    cut.write_text(traced.read_text()[:-30])
    empty.write_text("")
    model = save_tiny(tmp_path / "other", seed=1, max_position_embeddings=1024)
    flags = ("--cost-prompts", 0, *SHORT, "--drafter", "self", "--exit-layer", 3, "-o")
    assert forerun("trace", model, "--prompts", prompts, *flags, other).status == 0
    for arguments, sentence in (
        (("simulate", cut), "cut.jsonl is cut off in the middle of line 7; run the same forerun trace command again"),
        (("simulate", empty), "empty.jsonl is an empty trace; make one with forerun trace"),
        (("simulate", prompts), "this is no trace: a header is missing"),
        (("policies", "compare", traced, "--choose-on", other), "was traced with another model, tokenizer or drafter"),
        (("policies", "compare", traced, "--measure", model), "was traced with another model, tokenizer or drafter"),
        (("trace", tiny, "--prompts", prompts, *flags, other), "holds a trace that differs in pair"),
        (("simulate", traced, "--costs", "d=1"), "costs must be calibrated, or c= and a number"),
        (("policies", "compare", traced, "--best", "0"), "--best must be at least 1, got 0"),
    ):
        ran = forerun(*arguments)
        assert ran.status == 2, arguments
        assert sentence in ran.said
        assert len([line for line in ran.said.splitlines() if line.startswith("forerun:")]) == 1

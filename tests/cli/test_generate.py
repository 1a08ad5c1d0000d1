from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forerun as library
from forerun.cli.generate import summary
from forerun.testing import END, save_tiny

from .conftest import Ran

Call = Callable[..., Ran]
SHORT = ("--max-new-tokens", "12")
SWITCHES = {"speculate": True, "json_object": False, "remember": True, "explain": False, "generation_config": True}


@pytest.fixture(scope="module")
def engine(tiny: str) -> library.Engine:
    return library.load(tiny)


def test_the_text_stands_alone_on_stdout(forerun: Call, engine: library.Engine, tiny: str) -> None:
    ran = forerun("generate", tiny, "hello", *SHORT)
    expected = engine.generate([{"role": "user", "content": "hello"}], max_new_tokens=12).text

    assert ran.status == 0
    assert ran.out == expected + "\n"


def test_a_closing_line_on_stderr_tells_what_it_took(forerun: Call, tiny: str) -> None:
    ran = forerun("generate", tiny, "hello", *SHORT, "--drafter", "self", "--exit-layer", "2", "--k", "3")

    assert "12 tokens, ended by length" in ran.said
    assert "tokens/s after the first" in ran.said
    assert "tokens per round" in ran.said
    assert "drafted tokens accepted" in ran.said


def test_a_method_that_changes_the_law_says_so(forerun: Call, tiny: str) -> None:
    graph = ("--drafter", "graph", "--of", "self", "--exit-layer", "2")
    lossy = ("--verification", "stochastic-lossy")

    assert "lossy: sampled text does not follow" in forerun("generate", tiny, "hello", *SHORT, *graph, *lossy).said
    assert "lossy" not in forerun("generate", tiny, "hello", *SHORT, *graph).said
    told = [json.loads(forerun("generate", tiny, "a", *SHORT, *graph, *more, "--json").out) for more in (lossy, ())]
    assert [one["lossy"] for one in told] == [True, False]


def test_json_is_one_object_with_the_result(forerun: Call, engine: library.Engine, tiny: str) -> None:
    ran = forerun("generate", tiny, "hello", *SHORT, "--json", "--logprobs", "2")
    told = json.loads(ran.out)
    expected = engine.generate([{"role": "user", "content": "hello"}], max_new_tokens=12, logprobs=2)

    assert (told["text"], told["ids"]) == (expected.text, list(expected.ids))
    assert told["finish_reason"] == "length"
    assert told["prompt_tokens"] == expected.prompt_tokens
    assert told["stats"]["tokens"] == 12
    assert told["tokens_per_second"] > 0
    assert [one["token"] for one in told["logprobs"]] == told["ids"]
    assert all(len(one["top"]) == 2 for one in told["logprobs"])


@pytest.mark.parametrize(
    "flags",
    [
        ("--drafter", "lookup"),
        ("--drafter", "self", "--exit-layer", "2", "--policy", "fixed", "--k", "4"),
        ("--drafter", "self", "--skip-attention", "1,2", "--policy", "threshold", "--confidence", "0.1"),
        ("--drafter", "lookup", "--policy", "bounded", "--inner", "heuristic", "--k", "2", "--max-steps", "3"),
        ("--drafter", "hybrid", "--then", "self", "--exit-layer", "3", "--min-ngram", "2", "--k", "4"),
        ("--drafter", "tree", "--of", "self", "--exit-layer", "3", "--n", "2", "--min-confidence", "0", "--k", "3"),
        ("--drafter", "graph", "--of", "self", "--exit-layer", "3", "--m", "0", "--leaf", "0", "--budget", "9"),
        ("--drafter", "lookup", "--no-speculate"),
    ],
)
def test_no_method_changes_the_output(forerun: Call, tiny: str, flags: tuple[str, ...]) -> None:
    plain = json.loads(forerun("generate", tiny, "abcabcabc", *SHORT, "--json").out)
    told = json.loads(forerun("generate", tiny, "abcabcabc", *SHORT, "--json", *flags).out)

    assert told["ids"] == plain["ids"]


def test_unless_told_otherwise_it_chooses_and_says_what_and_why(forerun: Call, tiny: str) -> None:
    choice = "auto: suffix; no trained draft is known for this model"
    ran = forerun("generate", tiny, "abcabcabc", *SHORT)
    assert choice in ran.err
    assert choice not in ran.out
    assert json.loads(forerun("generate", tiny, "hello", *SHORT, "--json", "--no-trained").out)["choice"].startswith(
        "auto: suffix; no trained draft is wanted"
    )
    assert json.loads(forerun("generate", tiny, "hello", *SHORT, "--json", "--drafter", "lookup").out)["choice"] is None


def test_explain_tells_of_each_round(forerun: Call, tiny: str) -> None:
    flags = ("--drafter", "lookup", "--policy", "cost", "--explain")
    told = json.loads(forerun("generate", tiny, "abcabcabc", *SHORT, "--json", *flags).out)
    rounds = told["explained"]
    assert len(rounds) == told["stats"]["rounds"]
    assert sum(one["accepted"] for one in rounds) == told["stats"]["accepted"]
    assert {"drafter", "confidences", "drafted", "expected_tokens", "expected_time"} <= rounds[0].keys()
    ran = forerun("generate", tiny, "abcabcabc", *SHORT, *flags)
    assert "round 1: " in ran.err
    assert "lookup: " in ran.err
    assert "round 1: " not in ran.out


def test_no_speculate_drafts_nothing(forerun: Call, tiny: str) -> None:
    flags = ("--drafter", "self", "--exit-layer", "2", "--json")

    assert json.loads(forerun("generate", tiny, "hello", *SHORT, *flags).out)["stats"]["drafted"] > 0
    assert json.loads(forerun("generate", tiny, "hello", *SHORT, *flags, "--no-speculate").out)["stats"]["drafted"] == 0


def test_a_draft_model_is_a_flag(forerun: Call, tiny: str) -> None:
    told = json.loads(
        forerun("generate", tiny, "hello", *SHORT, "--json", "--drafter", "draft_model", "--drafter-model", tiny).out
    )

    assert told["stats"]["acceptance"] == 1


def test_every_option_of_a_request_reaches_the_engine(
    forerun: Call, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}
    stream = library.Engine.stream

    def spy(self: library.Engine, prompt: Any, **options: Any) -> Any:
        seen.update(options)
        return stream(self, prompt, **options)

    monkeypatch.setattr(library.Engine, "stream", spy)
    given = {
        "max_new_tokens": 3,
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "no_repeat_ngram": 4,
        "seed": 7,
        "logprobs": 1,
        "prediction": "ab",
    }
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    ran = forerun(
        "generate", tiny, "a", *flags, "--ignore-eos", "--processed-logprobs", "--stop", "x", "--stop", "y", "--json"
    )

    assert ran.status == 0, ran.err
    assert seen == {**given, "stop": ["x", "y"], "ignore_eos": True, "processed_logprobs": True, **SWITCHES}


def test_the_text_follows_a_schema_a_grammar_an_expression_or_a_choice(
    forerun: Call, tiny: str, tmp_path: Path
) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.lark"
    schema.write_text('{"enum": [12, true]}')
    grammar.write_text('start: "yes" | "no"')
    allowed: dict[tuple[str, ...], tuple[str, ...]] = {
        ("--json-schema", str(schema)): ("12", "true"),
        ("--grammar", str(grammar)): ("yes", "no"),
        ("--regex", "ab{2}|c"): ("abb", "c"),
        ("--choice", "left", "--choice", "right"): ("left", "right"),
    }
    for flags, texts in allowed.items():
        told = json.loads(forerun("generate", tiny, "hello", "--json", *flags).out)
        assert told["text"] in texts
        assert told["finish_reason"] == "stop"
    assert forerun("generate", tiny, "hello", "--json-object", *SHORT).out.startswith("{")


def test_a_schema_that_is_none_is_refused_in_a_sentence(forerun: Call, tiny: str, tmp_path: Path) -> None:
    broken, binary = tmp_path / "broken.json", tmp_path / "binary.json"
    broken.write_text('{"type": ')
    binary.write_bytes(b"\xff{")
    for flags, said in {
        ("--json-schema", str(broken)): "json_schema must be a JSON schema",
        ("--json-schema", str(binary)): "holds no UTF-8 text",
        ("--json-schema", str(tmp_path / "none.json")): "none.json can't be read: No such file",
        ("--regex", "(a"): "regex can't be followed: unclosed group",
        ("--regex", "a", "--choice", "b"): "an answer follows one of",
    }.items():
        ran = forerun("generate", tiny, "hello", *flags)
        assert ran.status == 2
        assert said in ran.said


def test_a_seed_repeats_a_sampled_text(forerun: Call, tiny: str) -> None:
    flags = (*SHORT, "--temperature", "1", "--json", "--seed")
    first, again, other = (forerun("generate", tiny, "a", *flags, seed).out for seed in ("1", "1", "2"))

    assert json.loads(first)["ids"] == json.loads(again)["ids"] != json.loads(other)["ids"]


def test_a_stop_string_ends_the_text(forerun: Call, tiny: str) -> None:
    whole = json.loads(forerun("generate", tiny, "hello", *SHORT, "--json").out)["text"]
    told = json.loads(forerun("generate", tiny, "hello", *SHORT, "--json", "--stop", whole[4]).out)

    assert told["finish_reason"] == "stop"
    assert told["text"] == whole[: whole.index(whole[4])]


def test_raw_leaves_the_chat_template_out(forerun: Call, tiny: str) -> None:
    templated = json.loads(forerun("generate", tiny, "hello", "--json", *SHORT).out)
    raw = json.loads(forerun("generate", tiny, "hello", "--json", *SHORT, "--raw").out)

    assert (templated["prompt_tokens"], raw["prompt_tokens"]) == (8, 5)


def test_a_system_prompt_stands_before(forerun: Call, tiny: str) -> None:
    told = json.loads(forerun("generate", tiny, "hello", "--json", *SHORT, "--system-prompt", "be brief").out)

    assert told["prompt_tokens"] == 8 + len("be brief") + 2


def test_without_a_chat_template_the_text_is_taken_as_it_is(forerun: Call, tmp_path: Any) -> None:
    path = save_tiny(tmp_path, chat=False)

    assert json.loads(forerun("generate", path, "hello", "--json", *SHORT).out)["prompt_tokens"] == 5
    refused = forerun("generate", path, "hello", "--system-prompt", "be brief")
    assert refused.status == 2
    assert "chat template" in refused.said


def test_the_prompt_can_come_from_stdin(forerun: Call, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    told = json.loads(forerun("generate", tiny, "-", "--json", *SHORT).out)

    assert told["prompt_tokens"] == 8


def test_in_a_terminal_accepted_tokens_are_coloured(forerun: Call, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    flags = ("--drafter", "draft_model", "--drafter-model", tiny)

    assert "\x1b[32m" in forerun("generate", tiny, "hello", *SHORT, *flags).out
    assert "\x1b[32m" not in forerun("generate", tiny, "hello", *SHORT, *flags, "--no-speculate").out


def test_no_tokens_at_all_is_an_empty_text(forerun: Call, tiny: str) -> None:
    ran = forerun("generate", tiny, "hello", "--max-new-tokens", "0", "--json")

    assert ran.status == 0
    assert (json.loads(ran.out)["text"], json.loads(ran.out)["tokens_per_second"]) == ("", None)


def test_the_closing_line_leaves_out_what_there_is_not(engine: library.Engine) -> None:
    result = engine.generate([1, 2, 3], max_new_tokens=1)

    assert summary(result, 0.0) == "1 tokens, ended by length"


@pytest.fixture(scope="module")
def opinionated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that would sample, and forbids half of the tokens."""
    path = save_tiny(tmp_path_factory.mktemp("models") / "opinionated")
    fields = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "suppress_tokens": list(range(0, 256, 2))}
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": END, **fields}))
    return path


def test_a_checkpoint_that_would_sample_gets_one_line_and_a_greedy_text(forerun: Call, opinionated: Path) -> None:
    ran = forerun("generate", opinionated, "hello", *SHORT, "--json")

    assert ran.said == (
        "decoding greedily; the checkpoint's generation config asks for sampling (temperature 0.6, top_p 0.9): add "
        "--sample for that"
    )
    assert json.loads(ran.out)["applied"]["temperature"] == 0
    for flags in (("--sample",), ("--temperature", "0"), ("--no-sample",), ("--no-generation-config",)):
        assert forerun("generate", opinionated, "hello", *SHORT, "--json", *flags).said == ""


def test_json_tells_what_was_in_force(forerun: Call, opinionated: Path) -> None:
    def applied(*flags: str) -> Any:
        return json.loads(forerun("generate", opinionated, "hello", *SHORT, "--json", *flags).out)["applied"]

    assert applied()["checkpoint"] == ["suppress_tokens"]
    assert applied("--sample")["checkpoint"] == ["temperature", "top_p", "suppress_tokens"]
    warm = applied("--temperature", "0.8", "--top-k", "5")
    assert (warm["temperature"], warm["top_k"], warm["top_p"]) == (0.8, 5, 0.9)
    assert warm["checkpoint"] == ["top_p", "suppress_tokens"]
    assert applied("--no-generation-config")["checkpoint"] == []


def test_without_the_generation_config_the_text_is_another(forerun: Call, opinionated: Path) -> None:
    own, bare = (
        json.loads(forerun("generate", opinionated, "hello", *SHORT, "--json", *flags).out)["ids"]
        for flags in ((), ("--no-generation-config",))
    )

    assert all(token % 2 or token >= 256 for token in own)
    assert own != bare


def test_what_a_checkpoint_asks_for_and_cannot_be_done_is_one_sentence(forerun: Call, tmp_path: Path) -> None:
    path = save_tiny(tmp_path / "beams")
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": END, "num_beams": 4}))
    ran = forerun("generate", path, "hello", *SHORT)

    assert ran.status == 2
    assert "num_beams=4" in ran.said
    assert "--no-generation-config" in ran.said
    assert forerun("generate", path, "hello", *SHORT, "--no-generation-config").status == 0


def test_a_text_is_as_long_as_the_checkpoint_says_unless_told(forerun: Call, tmp_path: Path) -> None:
    path = save_tiny(tmp_path / "short")
    (path / "generation_config.json").write_text(json.dumps({"max_new_tokens": 5}))

    assert len(json.loads(forerun("generate", path, "hello", "--json").out)["ids"]) == 5
    assert len(json.loads(forerun("generate", path, "hello", "--json", "--max-new-tokens", "7").out)["ids"]) == 7


def test_stdin_that_holds_no_text_is_refused_in_one_sentence(
    forerun: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tiny: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9!"), "utf-8"))
    assert (
        "forerun: stdin holds no utf-8 text (invalid continuation byte at byte 3)" in forerun("generate", tiny, "-").err
    )
    monkeypatch.setattr("sys.stdin", None)
    ran = forerun("generate", tiny, "-")

    assert ran.status == 2
    assert "stdin, which is closed" in ran.err

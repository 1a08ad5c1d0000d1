"""Bad input gets one clear sentence on stderr, exit status 2, and nothing on stdout."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from forerun.testing import save_tiny

from .conftest import Ran

Call = Callable[..., Ran]


def refused(ran: Ran) -> str:
    """The sentence, after making sure that it is one and stands alone."""
    assert ran.status == 2, (ran.out, ran.err)
    assert ran.out == ""
    lines = ran.said.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("forerun: ")
    assert "Traceback" not in ran.err
    return lines[0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--drafter", "self", "--exit-layer", "0"), "exit_layer must be in 1..3 for a model of 4 layers, got 0"),
        (("--drafter", "self", "--exit-layer", "4"), "exit_layer must be in 1..3 for a model of 4 layers, got 4"),
        (("--drafter", "self", "--skip-attention", "1,4"), "a skipped layer must be in 0..3, got 4"),
        (("--drafter", "self", "--skip-mlp", "-1"), "a skipped layer must be in 0..3, got -1"),
        (("--policy", "fixed", "--k", "0"), "k must be at least 1, got 0"),
        (("--policy", "fixed", "--k", "many"), "--k takes a whole number, got 'many'"),
        (("--drafter", "guess"), "unknown drafter 'guess'; known: "),
        (("--policy", "guess"), "unknown policy 'guess'; known: "),
        (
            ("--drafter", "lookup", "--exit-layer", "2"),
            "--exit-layer is no option of drafter 'lookup' or policy 'fixed'; theirs:",
        ),
        (("--policy", "bounded", "--inner", "guess"), "unknown policy 'guess'; known: "),
        (("--policy", "bounded", "--inner", "fixed", "--confidence", "1"), "policy 'fixed' has no option 'confidence'"),
        (("--guess", "3"), "unknown option --guess; known: --drafter, "),
        (("--temperature", "-1"), "temperature must be"),
        (("--temperature", "nan"), "temperature must be"),
        (("--top-p", "0"), "top_p must be in (0, 1]"),
        (("--top-p", "1.5"), "top_p must be in (0, 1]"),
        (("--max-new-tokens", "-1"), "max_new_tokens must be at least 0, got -1"),
        (("--stop", ""), "a stop string must not be empty"),
        (("--dtype", "float8"), "unknown dtype float8; known: float32, "),
        (("--device", "abacus"), "no device abacus here"),
        (("--logprobs", "2"), "--json"),
        (("--json", "--logprobs", "-1"), "logprobs must be at least 0, got -1"),
        (("--json", "--processed-logprobs"), "processed_logprobs needs logprobs"),
        (("--drafter", "draft_model"), "drafter 'draft_model' needs option 'model'"),
    ],
)
def test_a_flag_that_can_not_be_meant_is_refused(forerun: Call, tiny: str, flags: Sequence[str], message: str) -> None:
    assert message in refused(forerun("generate", tiny, "hello", *flags))


def test_there_is_no_such_model(forerun: Call, tmp_path: Path) -> None:
    assert "no model at" in refused(forerun("generate", tmp_path / "missing", "hello"))
    assert "no config.json" in refused(forerun("generate", tmp_path, "hello"))


def test_an_encoder_decoder_is_no_causal_decoder(forerun: Call, tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "t5", vocab_size=97, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path)

    assert "causal" in refused(forerun("generate", tmp_path, "hello"))


def test_an_encoder_is_no_causal_decoder(forerun: Call, tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "bert", vocab_size=97, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)

    assert "forerun" in refused(forerun("generate", tmp_path, "hello"))


@pytest.mark.parametrize("prompt", ["", "-"])
def test_an_empty_prompt(forerun: Call, tiny: str, prompt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.read", lambda: "\n")

    assert "the prompt is empty" in refused(forerun("generate", tiny, prompt))


def test_a_prompt_longer_than_the_context(forerun: Call, tiny: str) -> None:
    message = refused(forerun("generate", tiny, "a" * 2000))

    assert "the prompt has 2003 tokens and the context holds 1024" in message


def test_a_draft_model_with_another_tokenizer(forerun: Call, tiny: str, tmp_path: Path) -> None:
    other = save_tiny(tmp_path)
    file = other / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    file.write_text(json.dumps(content))
    message = refused(forerun("generate", tiny, "hello", "--drafter", "draft_model", "--drafter-model", other))

    assert "has another tokenizer" in message


def test_logits_that_are_not_numbers(forerun: Call, tmp_path: Path) -> None:
    path = save_tiny(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        model.lm_head.weight[3] = torch.nan
    model.save_pretrained(path)

    assert "nan" in refused(forerun("generate", path, "hello")).lower()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + bytes(200), b"no model at all"])
def test_a_gguf_file_that_is_none(
    forerun: Call, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    file.write_bytes(content)

    assert "model.gguf" in refused(forerun("generate", file, "hello"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"prompt": "a"', "not valid JSON"),
        ('{"text": "a"}', "one of 'prompt', 'messages', 'turns'"),
        ('["a"]', 'an object is needed, got ["a"]'),
        ('{"prompt": ""}', '"prompt" must hold text'),
        ('{"turns": []}', '"turns" must be a list that is not empty'),
        ('{"messages": [{"role": "user"}]}', 'a message has "role" and "content"'),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "the last message must be the user's"),
    ],
)
def test_a_prompts_file_with_a_bad_line(forerun: Call, tiny: str, tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "fine"}\n\n' + line + "\n")
    message = refused(forerun("compare", tiny, "--prompts", file))

    assert "prompts.jsonl, line 3: " in message
    assert reason in message


def test_a_prompts_file_that_is_not_there_or_empty(forerun: Call, tiny: str, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")

    assert "can't read the prompts file" in refused(forerun("compare", tiny, "--prompts", tmp_path / "missing.jsonl"))
    assert "holds no prompt" in refused(forerun("compare", tiny, "--prompts", tmp_path / "empty.jsonl"))


def test_a_comparison_that_can_not_be_timed(forerun: Call, tiny: str) -> None:
    assert "repeats must be at least 1, got 0" in refused(forerun("compare", tiny, "--repeats", "0"))
    assert "max_new_tokens must be at least 2" in refused(forerun("compare", tiny, "--max-new-tokens", "1"))


def test_command_lines_without_a_meaning(forerun: Call, tiny: str) -> None:
    assert "unknown command 'frobnicate'; known: generate, chat, serve, compare, " in refused(forerun("frobnicate"))
    assert "Missing argument" in refused(forerun("generate", tiny))
    assert "unknown option --repeats; known: " in refused(forerun("generate", tiny, "hello", "--repeats=3"))
    assert "seed" in refused(forerun("generate", tiny, "hello", "--seed", "one"))

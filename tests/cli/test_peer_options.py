from __future__ import annotations

import pytest

from forerun.cli.peer_options import pairs, settings_of
from forerun.errors import UnsupportedOption


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert pairs(["vllm=/a=b/python"], "--peer-python", ["vllm"]) == {"vllm": "/a=b/python"}
    assert pairs(None, "--peer-python", []) == {}


@pytest.mark.parametrize("given", ["vllm", "vllm=", "=x"])
def test_what_is_no_pair_is_refused(given: str) -> None:
    with pytest.raises(UnsupportedOption, match="--peer-python"):
        pairs([given], "--peer-python", ["vllm"])


def test_a_name_that_takes_no_part_is_refused_with_those_that_do() -> None:
    with pytest.raises(UnsupportedOption, match="--peer-model names 'onnx'; known here: gguf, hf"):
        pairs(["onnx=/m"], "--peer-model", ["gguf", "hf"])


def test_settings_are_json_or_else_text_and_gather_by_peer() -> None:
    given = ['vllm.ngram={"num_speculative_tokens": 3}', "vllm.max_num_seqs=8", "llama-server.program=/bin/x=y"]
    assert settings_of(given, ["vllm", "llama-server"]) == {
        "vllm": {"ngram": {"num_speculative_tokens": 3}, "max_num_seqs": 8},
        "llama-server": {"program": "/bin/x=y"},
    }
    assert settings_of(None, []) == {}


def test_a_peers_name_may_hold_dots() -> None:
    assert settings_of(["llama.cpp.n_gpu_layers=1"], ["llama.cpp"]) == {"llama.cpp": {"n_gpu_layers": 1}}


@pytest.mark.parametrize("given", ["vllm", "vllm=3", "vllm.=3", ".ngram=3", "=3"])
def test_what_is_no_setting_is_refused(given: str) -> None:
    with pytest.raises(UnsupportedOption, match=r"takes PEER\.NAME=VALUE"):
        settings_of([given], ["vllm"])


def test_a_setting_of_a_peer_that_takes_no_part_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="names 'vllm'; known here: none"):
        settings_of(["vllm.ngram={}"], [])

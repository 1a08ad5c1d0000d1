"""The bundled model: every drafter writes what transformers' own greedy generate writes, in float32."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from forerun import DRAFTERS, load
from forerun.core.identity import digest_of_vocabulary
from forerun.drafters.corpora.files import build_corpus
from forerun.models.files.locate import locate
from forerun.models.gguf.convert import converted
from forerun.testing import save_tiny_adapter

pytestmark = pytest.mark.real

NEW = 24
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Q: What is 12 times 12?\nA:",
    "The three primary colours are red, yellow and",
    "Repeat after me: one two three, one two three, one two",
    "Dear Sir or Madam,\n\nI am writing to",
    "Water boils at a temperature of",
    "import numpy as np\n\nx = np.array([1, 2, 3])\nprint(",
    "Translate to French: Good morning, my friend.\n",
    "A list of fruits:\n1. apple\n2. banana\n3.",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "In 1969, the first human beings",
    "SELECT name, age FROM users WHERE",
    "To make a cup of tea, first",
    "Roses are red, violets are blue,",
    '{"name": "Ada", "born": 1815, "field": "mathematics"}\n{"name":',
    "The opposite of hot is cold. The opposite of up is",
    "<p>Hello</p>\n<p>Hello</p>\n<p>",
    "Summary: The meeting was moved from Monday to Tuesday because the room was taken. In short,",
)
OPTIONS: dict[str, dict[str, Any]] = {
    "self": {"exit_layer": 15},
    "draft_model": {"model": "first half"},
    "exit_adapter": {"adapter": "untrained"},
    "corpus": {"path": "prompts"},
    "ngrams": {"table": "smollm2-ngrams"},
    "guessed": {"of": "self", "exit_layer": 15},
    "hybrid": {"then": "self", "exit_layer": 15},
    "cascade": {"of": "suffix,self", "exit_layer": 15},
    "tree": {"of": "draft_model", "model": "first half"},
    "graph": {"of": "self", "exit_layer": 15, "m": 0},
}


@cache
def directory() -> Path:
    return converted(locate("smollm2"), torch.float32)


@cache
def reference() -> Any:
    return AutoModelForCausalLM.from_pretrained(directory(), dtype=torch.float32).eval()


@cache
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(directory())


def first_half() -> Any:
    """The model's own first 15 layers with its norm and head, as a model of its own."""
    config = type(reference().config).from_dict({**reference().config.to_dict(), "num_hidden_layers": 15})
    config.layer_types = None
    half = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    half.load_state_dict({name: value for name, value in reference().state_dict().items() if name in half.state_dict()})
    return half.eval()


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An exit adapter after the last layer, begun from the model's own."""
    path = tmp_path_factory.mktemp("adapters") / "untrained"
    return str(save_tiny_adapter(path, reference(), 30, "state+token", tokenizer=tokenizer()))


@pytest.fixture(scope="module")
def prompts_corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the model writes after half of the prompts."""
    path = tmp_path_factory.mktemp("corpora") / "prompts"
    texts = [[*tokenizer()(prompt).input_ids, *wanted(prompt)] for prompt in PROMPTS[::2]]
    build_corpus(texts, path, (digest_of_vocabulary(tokenizer().get_vocab()), reference().config.vocab_size))
    return str(path)


@cache
def wanted(prompt: str) -> tuple[int, ...]:
    ids = torch.tensor([tokenizer()(prompt).input_ids])
    with torch.inference_mode():
        out = reference().generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
    return tuple(out[0, ids.shape[1] :].tolist())


def test_the_prompts_are_as_short_as_promised() -> None:
    assert len(PROMPTS) == 20
    assert all(len(tokenizer()(prompt).input_ids) <= 100 for prompt in PROMPTS)


@pytest.mark.parametrize("drafter", DRAFTERS.names)
def test_every_drafter_writes_what_transformers_writes(drafter: str, untrained: str, prompts_corpus: str) -> None:
    made = {
        "first half": first_half() if "first half" in OPTIONS.get(drafter, {}).values() else None,
        "untrained": untrained,
        "prompts": prompts_corpus,
    }
    options = {name: made.get(value, value) for name, value in OPTIONS.get(drafter, {}).items()}
    policy = {} if drafter == "auto" else {"policy_options": {"k": 3}}
    engine = load("smollm2", dtype="float32", drafter=drafter, drafter_options=options, **policy)
    results = engine.generate(list(PROMPTS), max_new_tokens=NEW, max_batch=20)
    assert [result.ids for result in results] == [wanted(prompt) for prompt in PROMPTS]
    # no request says what it expects
    assert (sum(result.stats.drafted for result in results) > 0) == (drafter not in ("none", "prediction"))


def test_one_prompt_alone_and_a_stream_write_the_same() -> None:
    engine = load(
        "smollm2", dtype="float32", drafter="self", drafter_options={"skip_attention": (12, 20), "skip_mlp": (15,)}
    )
    assert engine.generate(PROMPTS[5], max_new_tokens=NEW).ids == wanted(PROMPTS[5])
    pieces = list(engine.stream(PROMPTS[1], max_new_tokens=NEW))
    assert "".join(piece.text for piece in pieces) == tokenizer().decode(wanted(PROMPTS[1]), skip_special_tokens=True)

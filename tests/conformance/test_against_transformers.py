"""Random requests, prompts and generation configs: forerun writes what transformers writes, or refuses in a sentence.

Three ways lead to an answer: an engine that load made, model.generate with forerun's hook, and model.generate alone. Greedy
answers must be equal; sampled ones must be those of the same engine without drafts. Nothing ends in a traceback.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import BatchEncoding, GenerationConfig

from forerun import Engine, ForerunError, custom_generate, load
from forerun.testing import END, tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
VOCABULARY = len(TOKENIZER)
T = TypeVar("T")
FAMILIES = ("llama", "qwen2", "gemma2", "gpt2")
CASES = 2000
ROUTES = ("engine", "hook")
EACH = CASES // (len(FAMILIES) * len(ROUTES))

random_cases = settings(
    max_examples=EACH, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@dataclass(frozen=True)
class Prompt:
    """What is handed over, and the ids that it means; None where it means none."""

    given: Any
    ids: tuple[int, ...] | None


@dataclass(frozen=True)
class Refused:
    """How a call was refused."""

    error: Exception

    def check(self) -> None:
        assert isinstance(self.error, ForerunError | ValueError), repr(self.error)
        assert str(self.error).strip()
        assert "Traceback" not in str(self.error)


TEXTS = st.text(st.sampled_from("ab cé\n"), min_size=1, max_size=12)
IDS = st.lists(st.integers(0, 96) | st.just(END), min_size=1, max_size=12)


def _of_ids(ids: Sequence[int]) -> st.SearchStrategy[Prompt]:
    forms = (
        list(ids),
        tuple(ids),
        torch.tensor(ids),
        np.array(ids),
        [np.int64(one) for one in ids],
        BatchEncoding({"input_ids": list(ids), "attention_mask": [1] * len(ids)}),
    )
    return st.sampled_from([Prompt(form, tuple(ids)) for form in forms])


def _of_text(text: str) -> Prompt:
    return Prompt(text, tuple(TOKENIZER(text).input_ids))


def _of_chat(text: str) -> st.SearchStrategy[Prompt]:
    message = [{"role": "user", "content": text}]
    ids = tuple(TOKENIZER.apply_chat_template(message, add_generation_prompt=True, return_dict=True)["input_ids"])
    parts = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    return st.sampled_from([Prompt(message, ids), Prompt(tuple(message), ids), Prompt(parts, ids)])


WRONG = st.sampled_from(
    [
        *(b"bytes", None, 3.5, True, "", [], (), [1.5], [-1], [10**6], "\ud800", {"role": "user"}, object(), {1, 2}),
        *(
            [{"role": "user"}],
            [{"content": "a"}],
            [{"role": "user", "content": None}],
            [{"role": "user", "content": 3}],
        ),
        *(
            torch.zeros(0, dtype=torch.long),
            torch.ones(3),
            torch.tensor(3.0),
            np.array([0.5]),
            ["a", 3],
            [[1], "a", None],
        ),
        [{"role": "user", "content": [{"type": "image", "url": "x"}]}],
    ]
).map(lambda given: Prompt(given, None))
PROMPTS = st.one_of(
    IDS.flatmap(_of_ids), IDS.flatmap(_of_ids), TEXTS.map(_of_text), TEXTS.map(_of_text), TEXTS.flatmap(_of_chat), WRONG
)

# request option -> values; what transformers calls it is below
REQUESTS = st.fixed_dictionaries(
    {"max_new_tokens": st.integers(1, 10)},
    optional={
        "repetition_penalty": st.sampled_from([None, 1.0, 1.3, 2, 0.0, -1.0]),
        "no_repeat_ngram": st.sampled_from([None, 0, 1, 2, 3.0, 2.5]),
        "stop": st.sampled_from([None, [], "a", ["b", "éa"], [""], "<end>", "a<end>"]),
        "stop_token_ids": st.sampled_from([None, [], [97], [5, 6], [-1], [10**6]]),
        "temperature": st.sampled_from([None, 0, 0.0, 0.0, 0.0, 0.7, 1, -1.0, float("nan")]),
        "top_p": st.sampled_from([None, 1.0, 0.5, 2.0]),
        "top_k": st.sampled_from([None, 0, 5, -3]),
        "min_p": st.sampled_from([None, 0.0, 0.1]),
        "logprobs": st.sampled_from([None, 0, 2, True, False, -1]),
        "seed": st.sampled_from([None, 3, -1]),
        "ignore_eos": st.sampled_from([None, False, True]),
        "processors": st.sampled_from([None, (), lambda ids, scores: -scores]),
        "unknown_option": st.just(1),
    },
).filter(lambda request: "unknown_option" not in request or len(request) > 3)

# a checkpoint's own generation config
CHECKPOINTS = st.fixed_dictionaries(
    {},
    optional={
        "repetition_penalty": st.sampled_from([1.0, 1.2, 1.8]),
        "no_repeat_ngram_size": st.sampled_from([0, 2, 3]),
        "suppress_tokens": st.sampled_from([[97, 98], list(range(60, 120))]),
        "begin_suppress_tokens": st.sampled_from([[97], list(range(100))]),
        "bad_words_ids": st.sampled_from([[[97]], [[97, 98], [99]]]),
        "sequence_bias": st.sampled_from([[[[97], 4.0]], [[[98, 99], -3.0], [[100], 2.0]]]),
        "min_new_tokens": st.integers(0, 6),
        "min_length": st.integers(0, 12),
        "forced_bos_token_id": st.just(97),
        "forced_eos_token_id": st.just(END),
        "exponential_decay_length_penalty": st.just((3, 1.5)),
        "remove_invalid_values": st.booleans(),
        "renormalize_logits": st.booleans(),
        "eos_token_id": st.sampled_from([END, [END, 98]]),
        "num_beams": st.sampled_from([1, 1, 1, 2]),
        "guidance_scale": st.sampled_from([1.0, 1.5]),
        "penalty_alpha": st.just(0.5),
        "temperature": st.just(0.6),
        "do_sample": st.booleans(),
        "top_p": st.just(0.9),
    },
)
FEW = st.one_of(st.just({}), CHECKPOINTS.map(lambda config: dict(list(config.items())[:3])), CHECKPOINTS)


def of_transformers(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The request as arguments of generate; None where generate has nothing like it."""
    given = {name: value for name, value in request.items() if value is not None}
    if {"processors", "unknown_option"} & given.keys() or given.get("temperature") or given.get("ignore_eos"):
        return None
    if given.get("stop_token_ids"):
        return None
    arguments: dict[str, Any] = {"max_new_tokens": given["max_new_tokens"], "do_sample": False}
    if "repetition_penalty" in given:
        arguments["repetition_penalty"] = float(given["repetition_penalty"])
    if "no_repeat_ngram" in given:
        arguments["no_repeat_ngram_size"] = int(given["no_repeat_ngram"])
    if given.get("stop"):
        arguments |= {"stop_strings": given["stop"], "tokenizer": TOKENIZER}
    return arguments


def refused_or(call: Callable[[], T]) -> T | Refused:
    try:
        return call()
    except Exception as error:
        return Refused(error)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_model(request.param, vocab_size=VOCABULARY, eos_token_id=END, pad_token_id=0)


@pytest.fixture(scope="module")
def hook() -> Any:
    return custom_generate("lookup", policy_options={"k": 3})


def configured(model: Any, config: Mapping[str, Any]) -> Any:
    """The model with this generation config of its own."""
    model.generation_config = GenerationConfig(**{"eos_token_id": END, "pad_token_id": 0, **config})
    return model


def own_answer(model: Any, ids: Sequence[int], arguments: Mapping[str, Any], **more: Any) -> tuple[int, ...]:
    """What generate adds to a prompt."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prompt = torch.tensor([list(ids)])
        whole = model.generate(prompt, attention_mask=torch.ones_like(prompt), **arguments, **more)
    return tuple(whole[0, len(ids) :].tolist())


def drafted(engine: Engine, prompt: Any, request: Mapping[str, Any]) -> tuple[int, ...]:
    """What the engine adds, after checking that it is what it adds without drafts."""
    ids = engine.generate(prompt, **request).ids
    if request.get("temperature") in (None, 0) or request.get("seed") is not None:
        assert engine.generate(prompt, **request, speculate=False).ids == ids
    return ids


def test_an_engine_writes_what_transformers_writes_or_refuses_in_a_sentence(model: Any) -> None:
    seen: Counter[str] = Counter()

    @random_cases
    @given(PROMPTS, REQUESTS, FEW)
    def case(prompt: Prompt, request: dict[str, Any], config: dict[str, Any]) -> None:
        arguments = of_transformers(request)
        engine = refused_or(
            lambda: load(configured(model, config), TOKENIZER, drafter="lookup", policy_options={"k": 3})
        )
        answer = engine if isinstance(engine, Refused) else refused_or(lambda: drafted(engine, prompt.given, request))
        if isinstance(answer, Refused):
            seen["refused"] += 1
            answer.check()
        elif prompt.ids is None:
            raise AssertionError(f"{prompt.given!r} was taken as a prompt")
        elif arguments is not None:
            seen["equal"] += 1
            assert answer == own_answer(model, prompt.ids, arguments)

    case()
    assert seen["equal"] > EACH // 8
    assert seen["refused"] > EACH // 8


def test_the_hook_writes_what_transformers_writes_or_refuses_in_a_sentence(model: Any, hook: Any) -> None:
    seen: Counter[str] = Counter()

    @random_cases
    @given(st.lists(IDS, min_size=1, max_size=3), REQUESTS, FEW)
    def case(texts: list[list[int]], request: dict[str, Any], config: dict[str, Any]) -> None:
        arguments = of_transformers(request)
        if arguments is None:
            return
        width = max(map(len, texts))
        padded = torch.tensor([[0] * (width - len(text)) + text for text in texts])
        mask = torch.tensor([[0] * (width - len(text)) + [1] * len(text) for text in texts])

        def whole(**more: Any) -> list[list[int]]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return configured(model, config).generate(padded, attention_mask=mask, **arguments, **more).tolist()

        answer = refused_or(lambda: whole(custom_generate=hook))
        own = refused_or(whole)
        if isinstance(own, Refused):
            assert isinstance(answer, Refused)
        elif isinstance(answer, Refused):
            seen["refused"] += 1
            answer.check()
        else:
            seen["equal"] += 1
            assert answer == own

    case()
    assert seen["equal"] > EACH // 8

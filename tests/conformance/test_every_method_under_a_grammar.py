"""Every registered drafter under every registered policy, with a grammar: the text is that of masked plain decoding."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from forerun.core.chance import Seeded
from forerun.core.drive import Batch, drive
from forerun.core.values import Context, Round, Sampling
from forerun.engine.grammar.compiled import Grammars
from forerun.engine.grammar.source import GrammarSource

from .test_every_method import CASES, NEW, PROMPTS, REPEATED, adapters, engine, heads, target

__all__ = ["adapters", "heads"]  # the fixtures of the methods, for this module too

# a word, a forced ": ", a number, a forced "; ", and again; or it ends
PAIRS = GrammarSource("regex", r"([a-c]{1,3}: [0-9]{1,2}; )*")
END = 96
GREEDY = Sampling()


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """A token for each printable character, the blank and the line's end, then the text's end: 97, as the models have."""
    characters = [*map(chr, range(33, 127)), "Ġ", "Ċ"]
    own = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*characters, "<end>"])}, merges=[]))
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    own.add_special_tokens(["<end>"])
    return PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<end>")


@cache
def grammars() -> Grammars:
    return Grammars(tokenizer(), END + 1)


def request(prompt: list[int], sampling: Sampling = GREEDY, seed: int = 3) -> Context:
    constraint = grammars().constraint(PAIRS, (END,))
    return Context(
        list(prompt), Seeded(seed), sampling, max_new_tokens=NEW, eos=frozenset({END}), constraint=constraint
    )


def alone(built: Any, context: Context, speculate: bool = True) -> tuple[list[int], list[Round]]:
    rounds = [*drive(built.rounds(context, speculate))]
    return context.ids[context.prompt_length :], rounds


def together(built: Any, contexts: list[Context]) -> list[list[int]]:
    batch: Batch[int, Round] = Batch()
    for number, context in enumerate(contexts):
        batch.add(number, built.rounds(context))
    for _ in batch.values():
        pass
    return [context.ids[context.prompt_length :] for context in contexts]


@cache
def masked_greedy(prompt: tuple[int, ...]) -> list[int]:
    """By transformers' forward and a matcher of llguidance's own, a token at a time."""
    tables = LLTokenizer(tokenizer().backend_tokenizer.to_str(), n_vocab=END + 1, eos_token=END)
    matcher = LLMatcher(tables, LLMatcher.grammar_from_regex(PAIRS.text))
    ids = list(prompt)
    with torch.inference_mode():
        while len(ids) < len(prompt) + NEW and ids[-1] != END:
            logits = target()(torch.tensor([ids]), use_cache=False).logits[0, -1]
            bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
            forbidden = torch.from_numpy(np.unpackbits(bits, bitorder="little")[: END + 1] == 0)
            ids.append(int(logits.masked_fill(forbidden, -torch.inf).argmax()))
            matcher.consume_token(ids[-1])
    return ids[len(prompt) :]


@pytest.mark.parametrize(("drafter", "options", "policy", "policy_options"), CASES)
def test_greedy_text_equals_masked_plain_decoding_alone_and_in_a_batch(
    drafter: str, options: dict[str, Any], policy: str, policy_options: dict[str, Any]
) -> None:
    built = engine(drafter, options, policy, policy_options)
    wanted = [masked_greedy(tuple(prompt)) for prompt in PROMPTS]
    assert [alone(built, request(prompt))[0] for prompt in PROMPTS] == wanted
    assert together(built, [request(prompt) for prompt in PROMPTS]) == wanted


# the rules that look at a token's law, at its depth, and at what was learnt
SAMPLED = [case for case in REPEATED if case.values[2] in ("fixed", "confidence_product", "bounded", "roc")]


@pytest.mark.parametrize(("drafter", "options", "policy", "policy_options"), SAMPLED)
def test_seeded_sampling_is_the_same_alone_and_in_a_batch_and_follows_the_grammar(
    drafter: str, options: dict[str, Any], policy: str, policy_options: dict[str, Any]
) -> None:
    built = engine(drafter, options, policy, policy_options)
    sampling = Sampling(temperature=0.9, top_k=20, presence_penalty=0.3)
    texts = [alone(built, request(prompt, sampling))[0] for prompt in PROMPTS]
    assert together(built, [request(prompt, sampling) for prompt in PROMPTS]) == texts
    for text in texts:
        assert follows(text)


def follows(text: list[int]) -> bool:
    tables = LLTokenizer(tokenizer().backend_tokenizer.to_str(), n_vocab=END + 1, eos_token=END)
    return bool(LLMatcher(tables, LLMatcher.grammar_from_regex(PAIRS.text)).validate_tokens(text) == len(text))


@pytest.mark.parametrize("drafter", ["none", "lookup", "suffix"])
def test_seeded_sampling_with_chosen_drafts_equals_seeded_masked_plain_decoding(drafter: str) -> None:
    built = engine(drafter, {}, "fixed", {})
    for seed in range(12):
        sampling = Sampling(temperature=0.8, top_p=0.95)
        plain, rounds = alone(built, request(PROMPTS[0], sampling, seed), speculate=False)
        drafted, others = alone(built, request(PROMPTS[0], sampling, seed))
        assert plain == drafted
        assert not any(len(round.draft) for round in rounds)
        assert any(round.forced for round in others) == (len(drafted) > 4)


def test_the_texts_differ_from_unmasked_ones_and_hold_forced_tokens() -> None:
    texts = [masked_greedy(tuple(prompt)) for prompt in PROMPTS]
    assert all(follows(text) for text in texts)
    assert {tokenizer().decode(text)[:1] for text in texts} <= set("abc")
    assert any(": " in tokenizer().decode(text) for text in texts)

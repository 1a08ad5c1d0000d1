"""Every registered drafter under every registered policy: the text is the target's own, alone and in a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import DRAFTERS, POLICIES, Engine, load
from forerun.core.identity import Pair, identity_of
from forerun.drafters.corpora.files import build_corpus
from forerun.models.files.ngrams import write_ngrams
from forerun.models.loading.load import Module
from forerun.testing import save_tiny_classifier, save_tiny_draft, save_tiny_head, tiny_model
from forerun.train.data.examples import Example
from forerun.train.distil.adapter import shape_like
from forerun.train.distil.adapter_run import train_adapter
from forerun.train.distil.recipe import DistilRecipe
from forerun.train.distil.run import DistilRun
from forerun.train.ngrams.table import build_table

PROMPTS = ([5, 6, 7, 8, 5, 6, 7], [1], [2, 3] * 12, list(range(30, 50)))
NEW = 16

# More than the defaults: settings that take another path through a method.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "self": [{"exit_layer": 1}, {"exit_layer": 3}, {"skip_attention": (1, 2), "skip_mlp": (2,)}, {}],
    "lookup": [{}, {"max_ngram": 2, "min_ngram": 2}],
    "prediction": [{}],
    "suffix": [
        {},
        {"least": 0.01, "history": 0},
        {"ngrams": "counted", "least": 0.01},
        {"ngrams": "wrong", "least": 0.01},
    ],
    "ngrams": [{"table": "counted"}, {"table": "wrong", "least": 0.01}],
    "recycle": [{"min_confidence": 0.0, "budget": 12}, {"n": 1, "pairs": 0, "min_confidence": 0.01}],
    "corpus": [{"path": "texts"}, {"path": "texts", "least": 0.01}],
    "draft_model": [{"model": "small"}, {"model": "itself"}, {"model": "compact"}, {"model": "small", "draws": False}],
    "exit_adapter": [{"adapter": name} for name in ("state 2", "state+token 4")],
    "hybrid": [
        {"then": "self", "exit_layer": 2},
        {"then": "draft_model", "model": "small", "min_ngram": 2},
    ],
    "guessed": [
        {"of": "self", "exit_layer": 2, "ngrams": "counted", "least": 0.01},
        {"of": "self", "skip_attention": (1, 2), "least": 0.01},
        {"of": "draft_model", "model": "itself", "ngrams": "wrong", "least": 0.01},
        {"of": "draft_model", "model": "small", "draws": False, "least": 0.01},
    ],
    "cascade": [
        {"of": "suffix,self", "exit_layer": 2},
        {"of": "lookup,suffix,draft_model", "model": "small"},
        {"of": "suffix,recycle", "min_confidence": 0.01},
        {"of": "suffix,guessed", "guessed_of": "self", "exit_layer": 2},
    ],
    "tree": [
        {"of": "self", "exit_layer": 2, "n": 3},
        {"of": "draft_model", "model": "itself", "n": 2, "min_confidence": 0.0, "budget": 12},
        {"of": "exit_adapter", "adapter": "state+token 4", "siblings": "chosen"},
    ],
    "graph": [
        {"of": "self", "exit_layer": 2, "m": 0, "leaf": 0.0, "sibling": 0.0, "min_confidence": 0.0},
        {"of": "draft_model", "model": "itself"},
        {"of": "exit_adapter", "adapter": "state 2", "m": -1},
    ],
}
POLICY_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "fixed": [{"k": 1}, {"k": 6}],
    "threshold": [{"confidence": 0.2}, {"confidence": 1.0, "max_steps": 3}],
    "adaptive": [{"carry": False, "epsilon": 0.1}],
    "roc": [{"window": 12}],
    "cost": [{"carry": False, "draft_ratio": 0.1}],
    "bounded": [{"inner": "heuristic", "min_steps": 2, "max_steps": 4}, {"min_steps": 0, "max_steps": 1}],
    "governor": [{"inner": "cost"}],
}
# Where drafts depend on earlier requests or on the clock, drawn drafts give another text for the same seed, of the same law.
REMEMBER = ("adaptive", "cost", "governor")
CHOICE = ("cascade", "hybrid")
CHOOSE = ("none", "auto", "lookup", "suffix", "prediction", "recycle", "corpus", "ngrams")


HEADS: dict[str, tuple[str, Callable[[Path, Pair], Path]]] = {
    "acceptance_head": ("head", lambda place, pair: save_tiny_head(place, pair, 32)),
    "disco": ("classifier", save_tiny_classifier),
}
PLACE: list[Path] = []
TABLES: dict[str, str] = {}
CORPORA: dict[str, str] = {}
ADAPTERS: dict[str, str] = {}
COMPACT: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def heads(tmp_path_factory: pytest.TempPathFactory) -> None:
    PLACE[:] = [tmp_path_factory.mktemp("heads")]


@pytest.fixture(scope="module", autouse=True)
def corpora(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Texts that the prompts' answers are in, with and without a change in the middle."""
    place = tmp_path_factory.mktemp("corpora") / "texts"
    texts = [[*prompt, *greedy_by_transformers(tuple(prompt))] for prompt in PROMPTS]
    wrong = [[*text[: -NEW // 2], 0, *text[-NEW // 2 + 1 :]] for text in texts]
    build_corpus([*texts, *wrong], place, ("", target().config.vocab_size))
    CORPORA["texts"] = str(place)


@pytest.fixture(scope="module", autouse=True)
def tables(tmp_path_factory: pytest.TempPathFactory) -> None:
    """N-grams of the prompts' answers, and the same ones with other tokens after them."""
    place, size = tmp_path_factory.mktemp("tables"), target().config.vocab_size
    answers = [Example((*prompt, *greedy_by_transformers(tuple(prompt))), len(prompt)) for prompt in PROMPTS]
    table, _ = build_table(answers, identity_of(target(), None), held_out=0.5)
    write_ngrams(table, place / "counted")
    write_ngrams(replace(table, tokens=(table.tokens + 1) % size, likely=table.likely * 0 + 255), place / "wrong")
    TABLES.update({name: str(place / name) for name in ("counted", "wrong")})


@pytest.fixture(scope="module", autouse=True)
def compact(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A draft of three of the target's layers, on the target's tables."""
    COMPACT[:] = [save_tiny_draft(tmp_path_factory.mktemp("compact") / "draft", target(), (0, 1, 3))]


@pytest.fixture(scope="module", autouse=True)
def adapters(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Exit adapters that have learnt the prompts' answers, under their inputs and exit layers."""
    folder = tmp_path_factory.mktemp("adapters")
    answers = [Example((*prompt, *greedy_by_transformers(tuple(prompt))), len(prompt)) for prompt in PROMPTS]
    for inputs, layer in (("state", 2), ("state+token", 4)):
        run = DistilRun(
            shape=shape_like(target().config, layer, inputs, depth=1),
            recipe=DistilRecipe(epochs=40, learning_rate=5e-3, warmup=5, vocabulary=97),
            examples=answers,
            stores=(),
            output=folder / inputs,
            held_out=0.25,
        )
        module = Module(target(), None, "tiny", None)
        train_adapter(
            run,
            module,
            identity_of(target(), None),
            engine=lambda: load(target()),
            begin=lambda what, ticks: lambda: None,
            log=lambda now: None,
        )
        ADAPTERS[f"{inputs} {layer}"] = str(run.output)


@cache
def target(family: str = "llama") -> Any:
    return tiny_model(family)


def models(name: str) -> Any:
    return target() if name == "itself" else tiny_model("llama", seed=7, num_hidden_layers=1)


def drafters() -> list[tuple[str, dict[str, Any]]]:
    return [(name, options) for name in DRAFTERS.names for options in VARIANTS.get(name, [{}])]


def policies() -> list[tuple[str, dict[str, Any]]]:
    return [(name, options) for name in POLICIES.names for options in POLICY_VARIANTS.get(name, [{}])]


def engine(drafter: str, options: dict[str, Any], policy: str, policy_options: dict[str, Any]) -> Engine:
    made = {"compact": COMPACT[0]}
    given = {
        "model": lambda name: made.get(name) or models(name),
        "adapter": ADAPTERS.__getitem__,
        "path": CORPORA.__getitem__,
        "table": TABLES.__getitem__,
        "ngrams": TABLES.__getitem__,
    }
    built = {name: given[name](value) if name in given else value for name, value in options.items()}
    alone = load(target(), drafter=drafter, drafter_options=built)
    assert not alone.lossy, f"drafter {drafter!r} is lossy with {options}"
    return alone.using(alone.drafter, policy, policy_options={**trained(policy, alone.pair), **policy_options})


def trained(policy: str, pair: Pair) -> dict[str, Any]:
    """The options of a policy that was trained for the pair, with a random head; a rule of arithmetic needs none."""
    if policy not in HEADS:
        return {}
    option, save = HEADS[policy]
    place = PLACE[0] / f"{policy} {pair.drafter}"
    return {option: str(place if place.exists() else save(place, pair))}


@cache
def greedy_by_transformers(prompt: tuple[int, ...], family: str = "llama") -> tuple[int, ...]:
    model = target(family)
    with torch.inference_mode():
        ids = list(prompt)
        for _ in range(NEW):
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


CASES = [
    pytest.param(drafter, options, policy, policy_options, id=f"{drafter}{options}-{policy}{policy_options}")
    for drafter, options in drafters()
    for policy, policy_options in policies()
]


@pytest.mark.parametrize(("drafter", "options", "policy", "policy_options"), CASES)
def test_greedy_text_equals_plain_decoding_alone_and_in_a_batch(
    drafter: str, options: dict[str, Any], policy: str, policy_options: dict[str, Any]
) -> None:
    built = engine(drafter, options, policy, policy_options)
    wanted = [greedy_by_transformers(tuple(prompt)) for prompt in PROMPTS]
    alone = [built.generate(prompt, max_new_tokens=NEW).ids for prompt in PROMPTS]
    together = [result.ids for result in built.generate(list(PROMPTS), max_new_tokens=NEW)]
    assert alone == wanted
    assert together == wanted


REPEATED = [
    case
    for case in CASES
    if case.values[0] in CHOOSE
    or (case.values[0] not in CHOICE and (case.values[2] not in REMEMBER or case.values[3].get("carry", True) is False))
]


@pytest.mark.parametrize(("drafter", "options", "policy", "policy_options"), REPEATED)
def test_seeded_sampling_is_the_same_alone_in_a_batch_and_again(
    drafter: str, options: dict[str, Any], policy: str, policy_options: dict[str, Any]
) -> None:
    built = engine(drafter, options, policy, policy_options)
    sampling = {"temperature": 0.8, "top_k": 20, "repetition_penalty": 1.2, "seed": 3, "max_new_tokens": NEW}
    alone = [built.generate(prompt, **sampling).ids for prompt in PROMPTS]
    assert [result.ids for result in built.generate(list(PROMPTS), **sampling)] == alone
    assert [built.generate(prompt, **sampling).ids for prompt in PROMPTS] == alone


@pytest.mark.parametrize("policy", POLICIES.names)
def test_seeded_sampling_with_chosen_drafts_equals_seeded_plain_decoding(policy: str) -> None:
    sampling = {"temperature": 0.7, "top_p": 0.9, "presence_penalty": -0.5, "seed": 11, "max_new_tokens": 40}
    plain = engine("none", {}, "fixed", {}).generate(PROMPTS[2], **sampling)
    drafted = engine("lookup", {}, policy, {}).generate(PROMPTS[2], **sampling)
    assert drafted.ids == plain.ids
    assert drafted.stats.drafted > 0 or policy in REMEMBER


def test_a_draft_model_that_does_not_draw_leaves_a_seeded_text_as_it_is() -> None:
    sampling = {"temperature": 0.7, "top_p": 0.9, "seed": 11, "max_new_tokens": 40}
    plain = engine("none", {}, "fixed", {}).generate(PROMPTS[2], **sampling)
    drafted = engine("draft_model", {"model": "itself", "draws": False}, "fixed", {}).generate(PROMPTS[2], **sampling)
    assert drafted.ids == plain.ids
    assert drafted.stats.accepted > 0


def test_a_lossy_method_is_refused_here() -> None:
    with pytest.raises(AssertionError, match="drafter 'graph' is lossy"):
        engine("graph", {"of": "self", "verification": "stochastic-lossy"}, "fixed", {})


def test_drafting_with_the_target_itself_accepts_everything() -> None:
    for drafter, options in [("self", {}), ("draft_model", {"model": "itself"})]:
        for temperature in (0.0, 1.0):
            built = engine(drafter, options, "fixed", {"k": 4})
            stats = built.generate(PROMPTS[0], max_new_tokens=21, temperature=temperature, seed=1).stats
            assert stats.acceptance == 1
            assert stats.rounds == 4


@pytest.mark.parametrize("adapter", ["state 2", "state+token 4"])
def test_an_adapter_that_has_learnt_drafts_what_is_accepted(adapter: str) -> None:
    built = engine("exit_adapter", {"adapter": adapter}, "fixed", {"k": 4})
    results = built.generate(list(PROMPTS), max_new_tokens=NEW)
    assert sum(result.stats.accepted for result in results) > NEW
    assert any(result.stats.acceptance < 1 for result in results)


@pytest.mark.parametrize("drafter", DRAFTERS.names)
def test_turning_speculation_off_for_a_request_drafts_nothing(drafter: str) -> None:
    built = engine(drafter, VARIANTS.get(drafter, [{}])[0], "fixed", {})
    result = built.generate(PROMPTS[2], max_new_tokens=NEW, speculate=False)
    assert result.ids == greedy_by_transformers(tuple(PROMPTS[2]))
    assert result.stats.drafted == 0


def test_the_users_model_is_left_as_it_was() -> None:
    model = target()
    before = {name: (id(parameter), parameter.clone()) for name, parameter in model.named_parameters()}
    attention, forward = model.config._attn_implementation, type(model).forward
    engine("self", {"exit_layer": 2}, "heuristic", {}).generate(PROMPTS[0], max_new_tokens=8)
    assert model.config._attn_implementation == attention
    assert type(model).forward is forward
    assert "forward" not in vars(model.model.layers[0])
    for name, parameter in model.named_parameters():
        assert id(parameter) == before[name][0]
        assert torch.equal(parameter, before[name][1])

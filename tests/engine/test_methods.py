"""From names and options to drafters and policies."""

from __future__ import annotations

import pytest

from forerun import DRAFTERS, POLICIES, UnsupportedOption
from forerun.core.identity import Identity
from forerun.drafters.base import Parts
from forerun.drafters.lookup import Lookup
from forerun.drafters.none import NoDraft
from forerun.engine.methods import drafter_factory, policy_factory
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.policies.bounded import Bounded
from forerun.policies.fixed import Fixed
from forerun.testing import tiny_model

IDENTITY = Identity("llama", 2, 32, 64, "0" * 16)


@pytest.fixture(scope="module")
def parts() -> Parts:
    def nothing_to_load(model: object) -> tuple[SequencePool, None]:
        raise AssertionError(f"no test of this file loads a model, got {model}")

    return Parts(SequencePool(HFRunner(tiny_model("llama"))), IDENTITY, None, nothing_to_load)


def test_every_promised_method_is_registered() -> None:
    assert set(DRAFTERS.names) >= {"none", "draft_model", "lookup", "self", "hybrid"}
    assert set(POLICIES.names) >= {"fixed", "threshold", "heuristic", "bounded"}


@pytest.mark.parametrize("registry", [DRAFTERS, POLICIES])
def test_every_method_says_what_it_does_and_where_it_comes_from(registry: object) -> None:
    for name in registry.names:  # type: ignore[attr-defined]
        entry = registry.entry(name)  # type: ignore[attr-defined]
        assert entry.summary.endswith(".")
        assert entry.source


def test_a_name_becomes_a_factory_with_a_drafter_for_each_request(parts: Parts) -> None:
    factory = drafter_factory("lookup", {"max_ngram": 2}, parts)
    sequence = parts.target.acquire()
    first, second = factory(sequence), factory(sequence)
    assert isinstance(first, Lookup)
    assert first is not second


def test_a_policy_name_becomes_a_factory_with_a_policy_for_each_request() -> None:
    factory = policy_factory("fixed", {"k": 2})
    assert isinstance(factory(), Fixed)
    assert factory() is not factory()


def test_objects_pass_as_they_are(parts: Parts) -> None:
    def my_drafter(target: object) -> NoDraft:
        return NoDraft()

    assert drafter_factory(my_drafter, None, parts) is my_drafter
    policy = policy_factory(lambda: Fixed(1), None)
    assert isinstance(policy(), Fixed)


def test_a_wrapping_policy_hands_on_what_it_does_not_know() -> None:
    assert isinstance(policy_factory("bounded", {"inner": "fixed", "k": 3, "max_steps": 4})(), Bounded)
    with pytest.raises(UnsupportedOption, match="policy 'fixed' has no option 'confidence'; its options: k"):
        policy_factory("bounded", {"inner": "fixed", "confidence": 0.5})


def test_unknown_names_and_options_list_the_known_ones(parts: Parts) -> None:
    with pytest.raises(
        UnsupportedOption,
        match=r"unknown drafter 'x'; known: auto, cascade, .*hybrid, lookup, ngrams, none, prediction, recycle, self",
    ):
        drafter_factory("x", None, parts)
    with pytest.raises(UnsupportedOption, match="drafter 'none' has no option 'k'; its options: none"):
        drafter_factory("none", {"k": 1}, parts)

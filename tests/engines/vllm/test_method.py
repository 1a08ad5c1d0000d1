from __future__ import annotations

from typing import Any

import pytest

from forerun.drafters.lookup import Lookup
from forerun.drafters.suffix import Suffix
from forerun.engine.system.value import System
from forerun.engines.vllm.method import method_of
from forerun.errors import UnsupportedOption
from forerun.policies.bounded import Bounded
from forerun.policies.cost import CostAware
from forerun.policies.fixed import Fixed


def system(drafter: str = "suffix", policy: str = "fixed", options: Any = None, **of_policy: Any) -> System:
    return System("mine", drafter, options or {}, policy, of_policy)


@pytest.mark.parametrize(("drafter", "kind"), [("lookup", Lookup), ("suffix", Suffix)])
def test_drafters_that_copy_text_are_built_without_a_model(drafter: str, kind: type) -> None:
    assert isinstance(method_of(system(drafter), 8).make()[0], kind)


def test_each_request_has_a_drafter_and_a_policy_of_its_own() -> None:
    method = method_of(system(), 8)

    assert method.make()[0] is not method.make()[0]
    assert method.make()[1] is not method.make()[1]


def test_the_governor_is_taken_out_and_its_inner_policy_is_each_requests() -> None:
    method = method_of(system(policy="governor", inner="fixed", k=2, loss=0.05), 8)

    assert method.governor is not None
    assert isinstance(method.make()[1], Fixed)
    assert isinstance(method_of(system(policy="governor"), 8).make()[1], CostAware)
    assert method_of(system(), 8).governor is None


def test_cost_knows_the_load_unless_its_costs_are_given() -> None:
    method = method_of(system(policy="cost"), 4)
    method.costs.requests = 16
    policy = method.make()[1]
    assert isinstance(policy, CostAware)
    assert policy._shared.costs is method.costs

    given = method_of(system(policy="cost", draft_ratio=0.1), 4).make()[1]
    assert isinstance(given, CostAware)
    assert given._shared.costs is not method.costs


@pytest.mark.parametrize(("given", "most"), [({}, 4), ({"max_steps": 2}, 2), ({"max_steps": 20}, 4)])
def test_cost_drafts_no_more_than_vllm_verifies(given: dict[str, int], most: int) -> None:
    policy = method_of(system(policy="cost", **given), 4).make()[1]

    assert isinstance(policy, CostAware)
    assert policy._max_steps == most


def test_fixed_drafts_as_many_as_vllm_verifies_unless_it_says_how_many() -> None:
    for given, most in (({}, 5), ({"k": 3}, 3)):
        policy = method_of(system(**given), 5).make()[1]
        assert isinstance(policy, Fixed)
        assert policy._k == most


def test_other_policies_are_built_as_they_are() -> None:
    assert isinstance(method_of(system(policy="bounded", inner="fixed", k=3), 8).make()[1], Bounded)


@pytest.mark.parametrize("options", [{"of": "suffix,lookup"}, {"of": "lookup, suffix"}])
def test_drafters_of_drafters_that_copy_run(options: dict[str, Any]) -> None:
    assert method_of(system("cascade", options=options), 8).make()
    assert method_of(system("hybrid", options={"then": "suffix"}), 8).make()


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (
            system("draft_model", options={"model": "x"}),
            "draft_model needs the files of vLLM's model, which aren't known here",
        ),
        (
            system("self", options={"exit_layer": 2}),
            "drafter 'self' can't run inside vLLM: .*; known there: lookup, suffix, corpus, draft_model",
        ),
        (system("auto"), "drafter 'auto' can't run inside vLLM: name the drafters yourself"),
        (system("cascade", options={"of": "suffix,recycle"}), "drafter 'recycle' can't run inside vLLM"),
        (system("hybrid", options={"then": "self"}), "drafter 'self' can't run inside vLLM"),
        (system("prediction"), "'prediction' can't run inside vLLM: .* put the expected text into the prompt"),
        (system("look"), "unknown drafter 'look'; known: "),
        (system(policy="governor", carry=False), "carry of the policy 'governor' must be true inside vLLM"),
        (system(policy="governor", inner="governor"), "inner must be another policy than 'governor' itself"),
        (system(policy="governor", loss=2.0), r"loss must be in \(0, 1\), got 2.0"),
        (system(policy="governor", sides=2), "has no option 'sides'"),
        (system(policy="cost", max_steps=0), "max_steps and retry must be at least 1, got 0 and 8"),
    ],
)
def test_what_can_not_run_there_is_refused_in_one_sentence(chosen: System, sentence: str) -> None:
    with pytest.raises((UnsupportedOption, ValueError), match=sentence) as refused:
        method_of(chosen, 8)
    assert "\n" not in str(refused.value)

from __future__ import annotations

from typing import Any

import pytest

from forerun.cli import method as module
from forerun.cli.method import Method, method_flags, method_of
from forerun.core.registry import Registry
from forerun.errors import UnsupportedOption


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter and two policies, some of whose options are called alike."""
    drafters: Registry[Any] = Registry("drafter")
    policies: Registry[Any] = Registry("policy")

    @drafters("tree", source="")
    def tree(parts: Any, *, k: int = 2, width: int = 3, temperature: float = 1.0, deep: bool = False) -> None: ...

    @policies("count", source="")
    def count(*, k: int = 2, limit: float = 0.5) -> None: ...

    @policies("wrap", source="")
    def wrap(*, inner: str = "count", **options: Any) -> None: ...

    monkeypatch.setattr(module, "DRAFTERS", drafters)
    monkeypatch.setattr(module, "POLICIES", policies)
    monkeypatch.setattr(module, "KINDS", {"drafter": drafters, "policy": policies})


def test_a_flag_goes_to_the_method_that_has_the_option() -> None:
    given = {"either__exit_layer": "15", "either__k": "4", "either__skip_mlp": None, "seed": 3}

    assert method_of("self", "fixed", given) == Method("self", "fixed", {"exit_layer": 15}, {"k": 4})


def test_lists_of_layers_are_read() -> None:
    method = method_of("self", "fixed", {"either__skip_attention": "3,5,7"})

    assert method.drafter_options == {"skip_attention": (3, 5, 7)}


def test_a_wrapping_policy_takes_the_options_of_the_one_inside() -> None:
    method = method_of(
        "none", "bounded", {"either__inner": "threshold", "either__confidence": "0.2", "either__max_steps": "4"}
    )

    assert method.policy_options == {"inner": "threshold", "confidence": 0.2, "max_steps": 4}


def test_a_wrapping_drafter_takes_the_options_of_both_inside() -> None:
    method = method_of(
        "hybrid", "fixed", {"either__then": "self", "either__exit_layer": "15", "either__min_ngram": "2"}
    )

    assert method.drafter_options == {"then": "self", "exit_layer": 15, "min_ngram": 2}


def test_a_flag_of_another_method_is_refused_with_those_that_fit() -> None:
    with pytest.raises(
        UnsupportedOption, match="--exit-layer is no option of drafter 'lookup' or policy 'fixed'; theirs: "
    ):
        method_of("lookup", "fixed", {"either__exit_layer": "3"})


@pytest.mark.parametrize(("drafter", "policy"), [("auto", "cost"), ("lookup", "fixed")])
def test_the_policy_goes_with_the_drafter_unless_one_is_chosen(drafter: str, policy: str) -> None:
    assert method_of(drafter, None, {}).policy == policy
    assert method_of(drafter, "cost", {}).policy == "cost"


@pytest.mark.parametrize(("drafter", "policy", "kind"), [("guess", "fixed", "drafter"), ("none", "guess", "policy")])
def test_an_unknown_method_is_refused_with_the_known_ones(drafter: str, policy: str, kind: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"unknown {kind} 'guess'; known: .*(lookup|fixed)"):
        method_of(drafter, policy, {})


def test_every_option_of_every_method_gets_one_flag() -> None:
    names = [flag.name for flag in method_flags()]

    assert len(names) == len(set(names))
    assert {"either__exit_layer", "either__k", "either__confidence", "either__inner"} <= set(names)


def test_an_option_that_is_called_like_an_argument_is_reached_by_its_kind() -> None:
    names = [flag.name for flag in method_flags(reserved=("model",))]

    assert "drafter__model" in names
    assert "either__model" not in names


@pytest.mark.usefixtures("registries")
def test_names_that_collide_get_prefixed_flags_too() -> None:
    names = {flag.name for flag in method_flags()}

    assert {"either__k", "drafter__k", "policy__k"} <= names
    assert "drafter__temperature" in names
    assert "either__temperature" not in names
    assert "drafter__width" not in names


@pytest.mark.usefixtures("registries")
def test_an_option_that_both_have_must_say_whose_it_is() -> None:
    with pytest.raises(
        UnsupportedOption, match="--k is an option of drafter 'tree' and of policy 'count'; write --drafter-k or"
    ):
        method_of("tree", "count", {"either__k": "1"})

    method = method_of("tree", "count", {"drafter__k": "1", "policy__k": "5"})

    assert (method.drafter_options, method.policy_options) == ({"k": 1}, {"k": 5})


@pytest.mark.usefixtures("registries")
def test_a_prefixed_flag_of_another_method_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="--policy-width is no option of policy 'count'; theirs: --k, --limit"):
        method_of("tree", "count", {"policy__width": "1"})


@pytest.mark.usefixtures("registries")
def test_a_switch_arrives_as_a_truth_value() -> None:
    assert method_of("tree", "count", {"either__deep": True}).drafter_options == {"deep": True}


@pytest.mark.usefixtures("registries")
def test_a_wrapper_takes_an_option_that_only_the_inner_policy_has() -> None:
    assert method_of("tree", "wrap", {"either__limit": "0.25"}).policy_options == {"limit": 0.25}


def test_a_label_names_both_with_their_options() -> None:
    method = Method("self", "fixed", {"skip_attention": (1, 2)}, {"k": 3})

    assert method.label == "self skip_attention=1,2, fixed k=3"

"""Builds drafters and policies for vLLM: those that need nothing of the target but its text, and are told of its load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast, final

from ...core.drafter import Drafter
from ...core.policy import LengthPolicy
from ...drafters.base import DrafterFactory, Parts
from ...drafters.registry import DRAFTERS
from ...engine.system.value import System
from ...errors import UnsupportedOption
from ...policies.base import PolicyFactory
from ...policies.cost import with_costs
from ...policies.registry import POLICIES
from .costs import LoadCosts
from .governing import LoadGovernor

COPYING = ("lookup", "suffix")
# what the wrapping drafters name theirs by
WRAPPED = {"cascade": "of", "hybrid": "then"}
REASONS = {
    "prediction": "vLLM hands a request's prediction to no proposer; put the expected text into the prompt, where "
    "lookup and suffix find it",
}


@final
@dataclass(frozen=True, slots=True)
class Method:
    """governor: None where nothing switches drafting off for all requests at once."""

    drafter: DrafterFactory
    policy: PolicyFactory
    costs: LoadCosts
    governor: LoadGovernor | None

    def make(self) -> tuple[Drafter, LengthPolicy]:
        """For a new request."""
        return self.drafter(cast(Any, None)), self.policy()  # drafters that copy text have no use for a sequence


def method_of(system: System, longest: int) -> Method:
    """Raises UnsupportedOption on drafters that run a model, and on policies trained for one."""
    costs = LoadCosts()
    name, options = system.policy, dict(system.policy_options)
    governor = None
    if name == "governor":
        name, options, governor = _governed(options)
    return Method(
        _drafter(system.drafter, system.drafter_options), _policy(name, options, costs, longest), costs, governor
    )


def _drafter(name: str, options: Mapping[str, Any]) -> DrafterFactory:
    named = str(options.get(WRAPPED[name], "")).split(",") if name in WRAPPED else [name]
    for one in (part.strip() for part in named):
        if one not in COPYING:
            DRAFTERS.entry(one)
            reason = REASONS.get(one, "inside vLLM run those that draft from text alone")
            raise UnsupportedOption(
                f"drafter {one!r} can't run inside vLLM: {reason}; known there: {', '.join(COPYING)}"
            )
    factory: DrafterFactory = DRAFTERS.check(name, options).build(_no_parts(), **options)
    return factory


def _governed(options: dict[str, Any]) -> tuple[str, dict[str, Any], LoadGovernor]:
    """The policy that the governor holds, its options, and the governor of all requests."""
    entry = POLICIES.check("governor", options)
    own = {
        name: options.pop(name, parameter.default)
        for name, parameter in entry.options.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    if not own["carry"]:
        raise UnsupportedOption("carry of the policy 'governor' must be true inside vLLM, where requests share rounds")
    # checks credit and loss, and that inner is another policy
    entry.build(**own, **options)
    return own["inner"], options, LoadGovernor(own["credit"], own["loss"])


def _policy(name: str, options: dict[str, Any], costs: LoadCosts, longest: int) -> PolicyFactory:
    if name == "fixed":
        options = {"k": longest, **options}
    entry = POLICIES.check(name, options)
    make: PolicyFactory = entry.build(**options)
    if name == "cost" and options.get("draft_ratio") is None:
        known = {option: options[option] for option in ("optimism", "retry", "carry") if option in options}
        make = with_costs(lambda: costs, max_steps=min(options.get("max_steps", longest), longest), **known)
    if make().trained_for is not None:
        raise UnsupportedOption(
            f"policy {name!r} can't run inside vLLM: it was trained on states that vLLM doesn't show"
        )
    return make


def _no_parts() -> Parts:
    """Drafters that copy text are built without any."""

    def no_model(model: Any) -> NoReturn:
        raise UnsupportedOption(f"no drafter can open {model} inside vLLM")

    return Parts(cast(Any, None), cast(Any, None), None, no_model)

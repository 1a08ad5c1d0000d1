"""From names and options to drafters and policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..drafters.registry import DRAFTERS
from ..policies.registry import POLICIES

if TYPE_CHECKING:
    from ..drafters.base import DrafterFactory, Parts
    from ..policies.base import PolicyFactory

P = TypeVar("P")

# what forerun generate does unless told otherwise, and the policies of that drafter and of any other
DEFAULT_DRAFTER = AUTO = "auto"
POLICY_OF_AUTO, DEFAULT_POLICY = "cost", "fixed"


def drafter_factory(drafter: str | DrafterFactory, options: Mapping[str, Any] | None, parts: Parts) -> DrafterFactory:
    """The factory of a registered drafter, or the given one. Raises UnsupportedOption on an unknown name or option."""
    if not isinstance(drafter, str):
        return drafter
    given = options or {}
    return DRAFTERS.check(drafter, given).build(parts, **given)


def name_of(drafter: object) -> str:
    """Its name, "" of a factory."""
    return drafter if isinstance(drafter, str) else ""


def policy_for(drafter: object, policy: P | None) -> P | str:
    """The policy that was chosen, else what goes with the drafter."""
    return (POLICY_OF_AUTO if drafter == AUTO else DEFAULT_POLICY) if policy is None else policy


def policy_factory(policy: str | PolicyFactory, options: Mapping[str, Any] | None) -> PolicyFactory:
    """The factory of a registered policy, or the given one. Raises UnsupportedOption on an unknown name or option."""
    if not isinstance(policy, str):
        return policy
    given = options or {}
    return POLICIES.check(policy, given).build(**given)

"""From names and options to drafters and policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..drafters.registry import DRAFTERS
from ..policies.registry import POLICIES

if TYPE_CHECKING:
    from ..drafters.base import DrafterFactory, Parts
    from ..policies.base import PolicyFactory

# what forerun generate does unless told otherwise
DEFAULT_DRAFTER, DEFAULT_POLICY = "lookup", "fixed"


def drafter_factory(drafter: str | DrafterFactory, options: Mapping[str, Any] | None, parts: Parts) -> DrafterFactory:
    """The factory of a registered drafter, or the given one. Raises UnsupportedOption on an unknown name or option."""
    if not isinstance(drafter, str):
        return drafter
    given = options or {}
    return DRAFTERS.check(drafter, given).build(parts, **given)


def policy_factory(policy: str | PolicyFactory, options: Mapping[str, Any] | None) -> PolicyFactory:
    """The factory of a registered policy, or the given one. Raises UnsupportedOption on an unknown name or option."""
    if not isinstance(policy, str):
        return policy
    given = options or {}
    return POLICIES.check(policy, given).build(**given)

"""From names and options to drafters and policies. Importing this module registers every method that comes with forerun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..drafters import draft_model, exit_adapter, graph, hybrid, lookup, none, self_draft, tree
from ..drafters.base import DRAFTERS, DrafterFactory, Parts
from ..policies import (
    acceptance_head,
    adaptive,
    bounded,
    confidence_product,
    cost,
    disco,
    entropy,
    fixed,
    governor,
    heuristic,
    roc,
    threshold,
)
from ..policies.base import POLICIES, PolicyFactory

# what forerun generate does unless told otherwise
DEFAULT_DRAFTER, DEFAULT_POLICY = "lookup", "fixed"

REGISTERED = (
    *(none, draft_model, exit_adapter, lookup, self_draft, hybrid, tree, graph),
    *(
        fixed,
        threshold,
        heuristic,
        adaptive,
        acceptance_head,
        disco,
        confidence_product,
        entropy,
        roc,
        cost,
        bounded,
        governor,
    ),
)


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

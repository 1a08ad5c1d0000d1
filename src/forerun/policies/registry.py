"""The registry of all policies: those in this folder, known from their source, and those that register themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core.registry import Registry

if TYPE_CHECKING:
    from .base import PolicyFactory

POLICIES: Registry[Callable[..., PolicyFactory]] = Registry("policy", "forerun.policies")

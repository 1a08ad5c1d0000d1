"""Whether pictures can be drawn here."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import UnsupportedOption


def check_plotting() -> None:
    """Raise UnsupportedOption where matplotlib is not installed: before a measurement that would end in it."""
    if find_spec("matplotlib") is None:
        raise UnsupportedOption("plots need matplotlib: pip install 'forerun[plot]'")

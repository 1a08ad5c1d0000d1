"""Whether what a server needs is installed."""

from __future__ import annotations

from importlib.util import find_spec

from ..errors import UnsupportedOption

NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def check_installed() -> None:
    """Raises UnsupportedOption, with what to do, where a package is missing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UnsupportedOption(
            f"serving needs {', '.join(missing)}, which isn't installed: pip install 'forerun[serve]'"
        )

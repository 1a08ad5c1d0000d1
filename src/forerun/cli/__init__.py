"""The command line: parse, build, call."""

from .app import main, run

__all__ = ["main", "run"]

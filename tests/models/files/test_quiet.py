"""Silencing transformers, and giving it its voice back."""

from __future__ import annotations

import warnings

import pytest
from transformers.utils import logging

from forerun.models.files.quiet import quiet


def state() -> tuple[int, bool]:
    return logging.get_verbosity(), logging.is_progress_bar_enabled()


def test_inside_nothing_is_logged_drawn_or_warned(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        assert state() == (logging.ERROR, False)
        logging.get_logger("transformers.modeling_utils").warning("a warning nobody can act on")
        warnings.warn("another one", UserWarning, stacklevel=1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("verbosity", [logging.INFO, logging.CRITICAL])
@pytest.mark.parametrize("bars", [True, False])
def test_afterwards_all_is_as_before_even_after_an_error(verbosity: int, bars: bool) -> None:
    found = state()
    logging.set_verbosity(verbosity)
    (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
    try:
        with pytest.raises(KeyError), quiet():
            raise KeyError
        assert state() == (verbosity, bars)
        with pytest.warns(UserWarning, match="heard"):
            warnings.warn("heard", UserWarning, stacklevel=1)
    finally:
        logging.set_verbosity(found[0])
        (logging.enable_progress_bar if found[1] else logging.disable_progress_bar)()

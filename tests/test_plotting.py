from __future__ import annotations

import pytest

from forerun import plotting
from forerun.errors import UnsupportedOption
from forerun.plotting import check_plotting


def test_with_matplotlib_nothing_is_said() -> None:
    pytest.importorskip("matplotlib")
    check_plotting()


def test_without_matplotlib_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plotting, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedOption, match=r"pip install 'forerun\[plot\]'"):
        check_plotting()

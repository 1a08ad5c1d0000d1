import pytest

from forerun.core.drafter import Drafter
from forerun.drafters.base import DRAFTERS
from forerun.drafters.none import NoDraft


def test_a_drafter_must_draft() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Drafter()  # type: ignore[abstract]


def test_closing_is_optional() -> None:
    NoDraft().close()


@pytest.mark.parametrize("name", DRAFTERS.names)
def test_every_drafter_tells_what_it_does_and_where_it_comes_from(name: str) -> None:
    entry = DRAFTERS.entry(name)
    assert entry.summary.endswith(".")
    assert entry.source

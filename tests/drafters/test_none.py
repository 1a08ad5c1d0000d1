from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.values import Context
from forerun.drafters.none import NoDraft, build


def test_nothing_is_drafted() -> None:
    assert list(drive(NoDraft().draft(Context([1, 2], Seeded(0))))) == []


def test_every_request_gets_a_drafter() -> None:
    assert isinstance(build(None)(None), NoDraft)  # type: ignore[arg-type]

"""The exact gate for drafts that are copied: from the text, earlier answers, a corpus or a prediction, and by a cascade."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import final

import pytest

from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.identity import Identity
from forerun.core.policy import LengthPolicy
from forerun.core.values import Context, Draft, Round, Step
from forerun.drafters.cascade import Cascade
from forerun.drafters.cascading.promises import Promises
from forerun.drafters.copying.history import History
from forerun.drafters.copying.vote_acceptance import VoteAcceptance
from forerun.drafters.corpora.files import build_corpus, open_corpus
from forerun.drafters.corpora.places import Places
from forerun.drafters.corpus import Corpus
from forerun.drafters.prediction import Prediction
from forerun.drafters.suffix import Suffix
from forerun.policies.fixed import Fixed

from . import drafts
from .exact import PROMPT, WITH_HISTORY, Enumerated, Scenario, Table, TableSequence, loop, truth, written

pytestmark = pytest.mark.usefixtures("tables", "steady_clock")

SPARSE = (0, 0, 1, 2, 3)
PAIRS: dict[str, tuple[Table, Table]] = {
    "dense": (Table("p"), Table("q")),
    "zeros": (Table("p0", weights=SPARSE), Table("q0", weights=SPARSE)),
    "greedy target": (Table("p", greedy=True), Table("q")),
}
EARLIER = [[0, 1, 2, 0, 1, 1], [0, 2, 1, 2], [0, 0, 1, 2, 2]]
LEAST = 0.01
Make = Callable[[TableSequence], Drafter]


@final
class Expecting(Drafter):
    """Prediction, in a request that expects a text."""

    copies = True

    def __init__(self, text: Sequence[int]) -> None:
        self._text = tuple(text)
        self._inner = Prediction(LEAST)

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        context.prediction = self._text
        async for step in self._inner.draft(context):
            yield step

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        self._inner.learn(context, round, rows)


@pytest.fixture
def steady_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes the same time, so that a cascade chooses alike in every run."""
    ticks = count()
    monkeypatch.setattr(import_module("forerun.core.decode"), "perf_counter", lambda: float(next(ticks)))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    place: Path = tmp_path_factory.mktemp("corpora") / "texts"
    build_corpus(EARLIER, place, ("", PROMPT + 1))
    return open_corpus(place, Identity("table", 1, 1, PROMPT + 1, "0" * 16, ""))


def remembering(target: TableSequence) -> Drafter:
    history = History(100)
    for answer in EARLIER:
        history.add(answer)
    return Suffix(VoteAcceptance(), history, LEAST)


def ways(places: Places) -> dict[str, Make]:
    """Each with nothing learnt yet, for every run of the loop anew."""
    own: dict[str, Make] = {
        "suffix": lambda target: Suffix(VoteAcceptance(), History(0), LEAST),
        "suffix with earlier answers": remembering,
        "corpus": lambda target: Corpus(places, VoteAcceptance(), LEAST),
        "prediction": lambda target: Expecting([0, 1, 2, 1, 0, 2]),
    }
    first = own["suffix"], own["corpus"]
    return {
        **own,
        "cascade in order": lambda target: Cascade([make(target) for make in first], ("suffix", "corpus"), None),
        "cascade of copied and drawn drafts": lambda target: Cascade(
            [own["suffix"](target), drafts.chain(target)], ("suffix", "self"), Promises()
        ),
        "prediction before a drawn draft": lambda target: Cascade(
            [own["prediction"](target), drafts.chain(target)], ("prediction", "self"), None
        ),
    }


NAMES = list(ways(None))  # type: ignore[arg-type]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("way", NAMES)
def test_copied_drafts_leave_the_law_as_it_is(places: Places, way: str, pair: str) -> None:
    target, draft = PAIRS[pair]
    scenario = Scenario(target, ways(places)[way], lambda: Fixed(2), draft, length=3 if "drawn" in way else 4)
    assert written(scenario, merge=False) == truth(scenario)


@pytest.mark.parametrize("way", NAMES)
def test_so_they_do_where_the_law_depends_on_the_text_and_it_ends_early(places: Places, way: str) -> None:
    target = Table("p", penalty=2)
    scenario = Scenario(
        target,
        ways(places)[way],
        lambda: Fixed(2),
        Table("q"),
        frozenset({2}),
        WITH_HISTORY,
        max_new_tokens=3,
        length=3,
    )
    assert written(scenario, merge=False) == truth(scenario)


@pytest.mark.parametrize("way", NAMES)
def test_there_are_drafts_here(places: Places, way: str) -> None:
    drafted: list[Draft] = []

    @final
    class Noted(LengthPolicy):
        def should_stop(self, steps: Sequence[Step]) -> bool:
            return len(steps) == 2

        def observe(self, steps: Sequence[Step], round: Round) -> None:
            drafted.append(round.draft)

    target = Table("p", greedy=True)
    loop(Scenario(target, ways(places)[way], Noted, Table("q"), max_new_tokens=40), Enumerated([]), 9)
    assert any(len(draft) == 2 for draft in drafted)

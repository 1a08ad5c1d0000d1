from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.errors import UnsupportedOption
from forerun.testing import save_tiny, tiny_model
from forerun.tune.candidates import OFF, Candidate, Way, branched_ways, exit_ways, hybrid_ways, lookup_ways
from forerun.tune.engines import Engines

IDS = [5, 6, 7, 5, 6, 7, 5]


@pytest.fixture
def engines() -> Engines:
    return Engines(forerun.load(tiny_model("llama")))


def test_every_candidate_writes_what_the_plain_engine_writes(engines: Engines) -> None:
    plain = engines.plain.generate(IDS, max_new_tokens=12).ids
    ways = [lookup_ways()[0], exit_ways(4)[2]]

    for way in [*ways, *hybrid_ways(ways[0], ways[1:])]:
        for policy in ("fixed", "cost", "governor"):
            result = engines.of(Candidate(way, policy)).generate(IDS, max_new_tokens=12)
            assert result.ids == plain


@pytest.mark.parametrize("way", branched_ways(("tree", "graph"), [exit_ways(4)[2]]), ids=lambda way: way.name)
def test_a_tree_drafts_as_the_registered_one_with_its_options(engines: Engines, way: Way) -> None:
    own = engines.of(Candidate(way, "fixed", {"k": 3}))
    registered = engines.plain.using(way.drafter, drafter_options=way.options, policy_options={"k": 3})
    one, other = (engine.generate(IDS, max_new_tokens=12) for engine in (own, registered))

    assert one.ids == other.ids
    assert one.stats.drafted == other.stats.drafted > 0
    assert one.stats.rounds == other.stats.rounds


def test_off_drafts_nothing(engines: Engines) -> None:
    assert engines.of(OFF).generate(IDS, max_new_tokens=8).stats.drafted == 0


def test_a_candidate_has_one_engine_so_that_its_policy_keeps_what_it_learnt(engines: Engines) -> None:
    candidate = Candidate(exit_ways(4)[0], "cost")

    assert engines.of(candidate) is engines.of(Candidate(exit_ways(4)[0], "cost"))


def test_a_draft_model_is_opened_once_for_all_that_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = str(save_tiny(tmp_path / "draft", num_hidden_layers=1))
    engines = Engines(forerun.load(str(save_tiny(tmp_path / "target"))))
    way = Way("draft model", "draft-model", "draft_model", {"model": draft})
    opened: list[str] = []
    real = forerun.engine.engine.open_model
    monkeypatch.setattr(
        forerun.engine.engine, "open_model", lambda name, **kw: (opened.append(str(name)), real(name, **kw))[1]
    )

    for candidate in (Candidate(way, "fixed", {"k": 2}), Candidate(way, "cost")):
        engines.of(candidate)
    for other in [*hybrid_ways(lookup_ways()[0], [way]), *branched_ways(("tree", "graph"), [way])]:
        engines.of(Candidate(other, "fixed"))

    assert opened == [draft]


def test_a_way_that_cannot_be_taken_is_refused(engines: Engines) -> None:
    with pytest.raises(UnsupportedOption):
        engines.of_way(Way("int4", "carved", "self", {"weights": "int4"}))

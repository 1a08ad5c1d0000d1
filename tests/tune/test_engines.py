from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.errors import UnsupportedOption
from forerun.testing import save_tiny, tiny_model
from forerun.tune.candidates import (
    OFF,
    Candidate,
    DrafterConfig,
    branched_configs,
    exit_configs,
    guessed_configs,
    hybrid_configs,
    lookup_configs,
    suffix_configs,
)
from forerun.tune.engines import Engines

IDS = [5, 6, 7, 5, 6, 7, 5]


@pytest.fixture
def engines() -> Engines:
    return Engines(forerun.load(tiny_model("llama")))


def test_every_candidate_writes_what_the_plain_engine_writes(engines: Engines) -> None:
    plain = engines.plain.generate(IDS, max_new_tokens=12).ids
    configs = [lookup_configs()[0], exit_configs(4)[2]]

    suffix = suffix_configs(())[0]
    guessed = guessed_configs(suffix, configs[1:])
    for config in [*configs, suffix, *guessed, *hybrid_configs(configs[0], configs[1:])]:
        for policy in ("fixed", "cost", "governor"):
            result = engines.of(Candidate(config, policy)).generate(IDS, max_new_tokens=12)
            assert result.ids == plain


@pytest.mark.parametrize(
    "config", branched_configs(("tree", "graph"), [exit_configs(4)[2]]), ids=lambda config: config.name
)
def test_a_tree_drafts_as_the_registered_one_with_its_options(engines: Engines, config: DrafterConfig) -> None:
    own = engines.of(Candidate(config, "fixed", {"k": 3}))
    registered = engines.plain.using(config.drafter, drafter_options=config.options, policy_options={"k": 3})
    one, other = (engine.generate(IDS, max_new_tokens=12) for engine in (own, registered))

    assert one.ids == other.ids
    assert one.stats.drafted == other.stats.drafted > 0
    assert one.stats.rounds == other.stats.rounds


def test_off_drafts_nothing(engines: Engines) -> None:
    assert engines.of(OFF).generate(IDS, max_new_tokens=8).stats.drafted == 0


def test_a_candidate_has_one_engine_so_that_its_policy_keeps_what_it_learnt(engines: Engines) -> None:
    candidate = Candidate(exit_configs(4)[0], "cost")

    assert engines.of(candidate) is engines.of(Candidate(exit_configs(4)[0], "cost"))


def test_a_draft_model_is_opened_once_for_all_that_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = str(save_tiny(tmp_path / "draft", num_hidden_layers=1))
    engines = Engines(forerun.load(str(save_tiny(tmp_path / "target"))))
    config = DrafterConfig("draft model", "draft-model", "draft_model", {"model": draft})
    opened: list[str] = []
    real = forerun.engine.engine.open_model
    monkeypatch.setattr(
        forerun.engine.engine, "open_model", lambda name, **kw: (opened.append(str(name)), real(name, **kw))[1]
    )

    for candidate in (Candidate(config, "fixed", {"k": 2}), Candidate(config, "cost")):
        engines.of(candidate)
    for other in [*hybrid_configs(lookup_configs()[0], [config]), *branched_configs(("tree", "graph"), [config])]:
        engines.of(Candidate(other, "fixed"))

    assert opened == [draft]


def test_a_way_that_cannot_be_taken_is_refused(engines: Engines) -> None:
    with pytest.raises(UnsupportedOption):
        engines.of_config(DrafterConfig("int4", "carved", "self", {"weights": "int4"}))

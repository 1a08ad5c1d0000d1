from __future__ import annotations

from pathlib import Path

import pytest

from forerun.errors import ModelNotFound, UnsupportedOption
from forerun.tune.serving.knobs import OFF, Wanted
from forerun.tune.serving.llama_cpp import LlamaCpp
from forerun.tune.serving.serving_engine import Launch

from .stand_in import stand_in

LLAMA = LlamaCpp()
LAUNCH = Launch("llama-server", "m.gguf", 8, 1024, 2, "", ("--mlock",))


def test_off_has_no_speculation_and_a_context_for_every_request() -> None:
    assert LLAMA.command(LAUNCH, OFF) == [
        *("llama-server", "--model", "m.gguf", "--parallel", "8", "--ctx-size", "8192"),
        *("--threads", "2", "--threads-batch", "2", "--mlock"),
    ]


def test_every_method_is_tried_first() -> None:
    methods = [one.method for one in LLAMA.first(Wanted((), ("d.gguf",)))]

    assert methods == ["ngram-simple", "ngram-map-k", "ngram-mod", "draft-model", "list"]
    assert [one.method for one in LLAMA.first(Wanted())] == methods[:3]


def test_a_list_has_the_n_grams_before_the_draft_model() -> None:
    (one,) = LLAMA.first(Wanted(("list",), ("d.gguf",)))

    told = " ".join(LLAMA.command(LAUNCH, one))
    assert "--spec-type ngram-simple,draft-simple" in told
    assert "--spec-draft-model d.gguf --spec-draft-n-max 4 --spec-draft-n-min 0 --spec-draft-p-min 0.5" in told


def test_beside_a_draft_model_lie_other_lengths_and_confidences() -> None:
    (one,) = LLAMA.first(Wanted(("draft-model",), ("d.gguf",)))
    near = LLAMA.near(one)

    assert {other.settings["--spec-draft-n-max"] for other in near} == {2, 4, 8, 16}
    assert {other.settings["--spec-draft-p-min"] for other in near} == {0.0, 0.5, 0.8}
    assert {other.settings["--spec-draft-n-min"] for other in near} == {0, 2}


def test_beside_a_setting_lie_others_of_its_method_each_once() -> None:
    for one in LLAMA.first(Wanted((), ("d.gguf",))):
        near = LLAMA.near(one)
        assert len(near) >= 2
        assert {other.method for other in near} == {one.method}
        assert len({other.name for other in (one, *near)}) == len(near) + 1


def test_only_the_pool_drafts_from_earlier_answers() -> None:
    assert [one.method for one in LLAMA.first(Wanted((), ("d.gguf",))) if one.remembers] == ["ngram-mod"]


def test_the_version_is_what_the_server_says(tmp_path: Path) -> None:
    assert LLAMA.version(str(stand_in(tmp_path))) == "1 (abc)"


def test_an_older_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOption, match=r"too old for forerun to tune, .*it has no --spec-draft-n-max; update"):
        LLAMA.version(str(stand_in(tmp_path, new=False)))


def test_a_server_that_says_it_came_up_without_drafts_is_found_out() -> None:
    log = (
        "0.01 I srv: loading\n0.02 E srv: failed to initialize speculative decoding context: draft vocab\n0.03 I ready"
    )

    assert LLAMA.complaint(log) == "0.02 E srv: failed to initialize speculative decoding context: draft vocab"
    assert LLAMA.complaint("0.01 I srv: loading\n") is None


def test_draft_models_are_gguf_files_that_are_there() -> None:
    with pytest.raises(UnsupportedOption, match=r"llama.cpp reads draft models as GGUF files, got draft"):
        LLAMA.check(LAUNCH, Wanted((), ("draft",)))
    with pytest.raises(ModelNotFound, match=r"no model at nothing.gguf"):
        LLAMA.check(LAUNCH, Wanted((), ("nothing.gguf",)))

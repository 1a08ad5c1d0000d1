"""Which kernels run: by the processor, by what was built, by FORERUN_NATIVE; and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.errors import UnsupportedOption
from forerun.models.lean.native import library
from forerun.models.lean.native.library import FAST, LEVELS, SWITCH, Library, check, choose, load, processor_levels

from .kernels import needs_kernels


def level_of(choice: Library | str) -> str:
    return choice.level if isinstance(choice, Library) else choice


@needs_kernels
def test_the_switch_lowers_the_choice() -> None:
    there = processor_levels()
    assert there[0] == "portable"
    for level in there:
        assert level_of(choose({SWITCH: level})) == level
    assert level_of(choose({SWITCH: "avx512"})) == there[-1]
    assert choose({SWITCH: "off"}) == "FORERUN_NATIVE=off says so"


@needs_kernels
def test_without_the_switch_only_kernels_known_to_be_fast_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    best = processor_levels()[-1]
    assert level_of(choose({})) == best or best not in FAST
    monkeypatch.setattr(library, "processor_levels", lambda: ["portable"])
    assert level_of(choose({})) == "no kernels known to be fast here; FORERUN_NATIVE=portable uses those that run"


def test_an_unknown_switch_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UnsupportedOption,
        match="FORERUN_NATIVE=avx1024 is unknown; known: off, portable, neon_dotprod, avx2, avxvnni, avx512",
    ):
        choose({SWITCH: "avx1024"})


def test_without_built_kernels_the_reason_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "built", lambda level: None)
    assert choose({}) == "the native kernels were not built; install forerun again where g++ or clang++ is"
    assert all(load(level) is None for level in LEVELS)


def test_a_file_that_is_no_library_counts_as_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF broken")
    monkeypatch.setattr(library, "built", lambda level: tmp_path / "broken.so")
    assert load("portable") is None


@needs_kernels
def test_a_library_of_another_version_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "VERSION", -1)
    assert load("portable") is None


def test_what_native_code_refuses_is_raised_in_words() -> None:
    check(0)
    with pytest.raises(ValueError, match="a token is not in the model's vocabulary"):
        check(1)
    with pytest.raises(ValueError, match="status 77"):
        check(77)

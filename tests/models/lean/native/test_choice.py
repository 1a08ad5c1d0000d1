"""Reading logits natively gives what torch's operations and transformers' processors give, ties and edges included."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.core.choice import Chooser
from forerun.core.law import Categorical, Filtered, Law
from forerun.core.sampling import greedy_tokens, law
from forerun.core.values import Sampling
from forerun.engine.engine import Engine, load
from forerun.errors import InvalidLogits
from forerun.models.lean.native.choice import ROOM, KnownBests, NativeChooser
from forerun.models.lean.native.library import SWITCH
from forerun.models.packed.sequence import Sequence
from forerun.testing import save_tiny

from ...running import chain, finish, text, together
from .kernels import LEVELS, kernels, native, needs_kernels

pytestmark = needs_kernels
SIZES = (1, 7, 16, 97, 1000, 20003)
FILTERS: list[dict[str, Any]] = [
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 50},
    {"top_p": 0.9},
    {"top_p": 0.05},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"top_k": 50, "top_p": 0.9, "temperature": 0.7},
    {"top_k": 20, "top_p": 0.8, "min_p": 0.05, "temperature": 1.9},
    {"top_p": 0.95, "min_p": 0.02, "temperature": 0.3},
]


@pytest.fixture(scope="module", params=LEVELS)
def chooser(request: Any) -> NativeChooser:
    return NativeChooser(kernels(request.param))


def rows(size: int, ties: bool, count: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(count, size, generator=generator) * 4
    logits[0, ::3] = -torch.inf
    logits[0, -1] = 1.0
    return (logits * 2).round() / 2 if ties else logits


def dense(own: Law, size: int) -> Tensor:
    if isinstance(own, Categorical):
        return own.probs
    assert isinstance(own, Filtered)
    probs = torch.zeros(size)
    probs[list(own.tokens)] = torch.tensor(own.probs)
    return probs


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
@pytest.mark.parametrize("options", FILTERS, ids=str)
def test_the_law_is_that_of_torchs_operations(chooser: NativeChooser, options: dict[str, Any], ties: bool) -> None:
    sampling = Sampling(**{"temperature": 1.0, **options})
    read = 0
    for size in SIZES:
        for row in rows(size, ties):
            own = chooser.filtered(row, sampling)
            if own is None:
                continue
            read += 1
            found, expected = dense(own, size), dense(law(row, sampling), size)
            assert torch.equal(found > 0, expected > 0)
            torch.testing.assert_close(found, expected, rtol=3e-6, atol=0)
    assert read > 3


def test_the_same_numbers_draw_the_same_tokens(chooser: NativeChooser) -> None:
    sampling = Sampling(temperature=0.8, top_k=40, top_p=0.95)
    draw = random.Random(0)
    for row in rows(20003, ties=False):
        own, dense_one = chooser.filtered(row, sampling), law(row, sampling)
        assert isinstance(own, Filtered)
        for _ in range(50):
            u = draw.random()
            assert own.quantile(u) == dense_one.quantile(u)


def test_neighbours_that_temperature_makes_equal_stay_together(chooser: NativeChooser) -> None:
    """Two logits a bit apart are one score after the division, so that top-k keeps both, as in transformers."""
    for start in range(1, 200):
        low = torch.tensor(start / 7, dtype=torch.float32)
        high = torch.nextafter(low, torch.tensor(torch.inf))
        row = torch.cat([torch.full((500,), -3.0), low[None], high[None]])
        sampling = Sampling(temperature=1.7, top_k=1)
        own, expected = chooser.filtered(row, sampling), law(row, sampling)
        assert own is not None
        assert torch.equal(dense(own, 502) > 0, dense(expected, 502) > 0)


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
@pytest.mark.parametrize("size", SIZES)
def test_the_best_token_is_the_first_of_the_largest(chooser: NativeChooser, size: int, ties: bool) -> None:
    logits = rows(size, ties)
    assert greedy_tokens(logits, chooser) == greedy_tokens(logits)
    values, _ = chooser.best(logits) or ([], [])
    assert values == logits.amax(-1).tolist()


def test_the_first_of_a_shorter_vocabulary_is_read_in_place(chooser: NativeChooser) -> None:
    logits = rows(1000, ties=False)
    assert greedy_tokens(logits[:, :300], chooser) == greedy_tokens(logits[:, :300])


@pytest.mark.parametrize("place", [0, 15, 16, 63, 64, 999])
def test_a_row_that_is_no_law_is_an_error_as_ever(chooser: NativeChooser, place: int) -> None:
    broken = rows(1000, ties=False)
    broken[1, place] = torch.nan
    with pytest.raises(InvalidLogits, match="NaN"):
        greedy_tokens(broken, chooser)
    with pytest.raises(InvalidLogits, match="NaN"):
        law(broken[1], Sampling(temperature=1.0, top_k=5), chooser=chooser)
    broken[1] = -torch.inf
    with pytest.raises(InvalidLogits, match="no token is allowed"):
        law(broken[1], Sampling(temperature=1.0, top_k=5), chooser=chooser)
    broken[1, place] = torch.inf
    with pytest.raises(InvalidLogits, match="inf"):
        law(broken[1], Sampling(temperature=1.0, top_p=0.5), chooser=chooser)


def test_what_it_leaves_to_torch(chooser: NativeChooser) -> None:
    row = torch.zeros(5000)
    assert chooser.filtered(row, Sampling(temperature=1.0)) is None
    assert chooser.filtered(row, Sampling(temperature=1.0, top_k=5000)) is None
    # all are equal, so that top-k keeps them all
    assert ROOM < 5000
    assert chooser.filtered(row, Sampling(temperature=1.0, top_k=5)) is None
    assert chooser.filtered(row.double(), Sampling(temperature=1.0, top_k=5)) is None
    assert chooser.filtered(torch.zeros(100, 2)[:, 0], Sampling(temperature=1.0, top_k=5)) is None
    assert chooser.best(row.double()[None]) is None


def test_history_and_warpers_are_torchs_work(chooser: NativeChooser) -> None:
    row = rows(97, ties=False)[1]
    penalised = Sampling(temperature=1.0, top_k=5, repetition_penalty=2.0)
    warped = Sampling(temperature=1.0, top_k=5, warpers=(lambda ids, scores: scores * 2,))
    for sampling in (penalised, warped):
        with_it, without = law(row, sampling, [1, 2], 1, chooser), law(row, sampling, [1, 2], 1)
        assert isinstance(with_it, Categorical)
        assert isinstance(without, Categorical)
        assert torch.equal(with_it.probs, without.probs)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, LEVELS[-1])
        path = save_tiny(tmp_path_factory.mktemp("model"), intermediate_size=64)
        return load(str(path), weights="int4", runner="lean", drafter="none")


@pytest.mark.parametrize("options", [{"top_k": 20, "top_p": 0.95}, {"min_p": 0.02}, {"top_p": 0.8}], ids=str)
def test_seeded_texts_with_lookup_are_the_plain_ones(engine: Engine, options: dict[str, Any]) -> None:
    for seed in range(3):
        asked = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 0.7, "seed": seed, **options}
        plain, drafted = (one.generate("abcabcabc", **asked) for one in (engine, engine.using("lookup")))
        assert drafted.ids == plain.ids


def test_drawn_drafts_are_verified_with_laws_of_few_tokens(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    filtered = NativeChooser.filtered
    monkeypatch.setattr(
        NativeChooser, "filtered", lambda self, row, sampling: made.append(filtered(self, row, sampling)) or made[-1]
    )
    own = engine.using("self", drafter_options={"exit_layer": 2})
    result = own.generate("abc", max_new_tokens=30, ignore_eos=True, temperature=0.7, top_k=9, seed=1)
    assert result.stats.drafted
    assert len(made) > result.stats.drafted
    assert all(isinstance(one, Filtered) and len(one.tokens) == 9 for one in made)


@pytest.mark.parametrize("level", LEVELS)
def test_a_forward_knows_the_best_tokens_of_its_rows_and_of_parts_of_them(level: str) -> None:
    rows = finish(Sequence(native("llama", level)).complete(text(9), chain(9)))
    assert isinstance(rows.chooser, KnownBests)
    values, tokens = rows.logits.max(-1)
    assert rows.chooser.best(rows.logits) == (values.tolist(), tokens.tolist())
    assert rows.chooser.best(rows.logits[2:5]) == (values[2:5].tolist(), tokens[2:5].tolist())
    assert rows.chooser.best(rows.logits[7]) == ([float(values[7])], [int(tokens[7])])


def test_a_forward_of_several_texts_knows_the_best_tokens_of_each() -> None:
    runner = native("llama")
    each = together(*(Sequence(runner).complete(text(5, seed), chain(5)) for seed in range(3)))
    for rows in each:
        assert rows.chooser is not None
        assert rows.chooser.best(rows.logits) == (rows.logits.amax(-1).tolist(), rows.logits.argmax(-1).tolist())


def test_of_other_rows_the_best_tokens_are_looked_for() -> None:
    rows = finish(Sequence(native("llama")).complete(text(4), chain(4)))
    chooser = rows.chooser
    assert isinstance(chooser, KnownBests)
    for other in (rows.logits.clone() - 1, rows.logits[:, :11], rows.logits[::2], rows.logits[0, 3:]):
        lines = other if other.ndim == 2 else other[None]
        assert chooser.best(other) == (lines.amax(-1).tolist(), lines.argmax(-1).tolist())


def test_known_best_tokens_are_not_looked_for_again() -> None:
    class Unasked(Chooser):
        def best(self, rows: Tensor) -> tuple[list[float], list[int]] | None:
            raise AssertionError("asked again")

        def filtered(self, row: Tensor, sampling: Sampling) -> Law | None:
            return None

    logits = torch.zeros(3, 7)
    known = KnownBests(Unasked(), logits, [1.0, 2.0, 3.0], [4, 5, 6])
    assert known.best(logits) == ([1.0, 2.0, 3.0], [4, 5, 6])
    assert known.best(logits[1:]) == ([2.0, 3.0], [5, 6])
    assert known.filtered(logits[0], Sampling(temperature=1.0, top_k=2)) is None
    with pytest.raises(AssertionError, match="asked again"):
        known.best(torch.zeros(1, 7))

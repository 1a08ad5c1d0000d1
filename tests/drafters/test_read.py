"""A text read in one pass gives the rows that drafting it token by token begins with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import Engine, load
from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.forward import Rows
from forerun.core.values import Context, Sampling, Step
from forerun.errors import UnsupportedOption
from forerun.testing import save_tiny, save_tiny_adapter, tiny_model

TEXT = [5, 6, 7, 8, 9, 3, 2, 11, 40, 17]
GIVEN = 4


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def adapters(model: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("adapters")
    return {
        f"{inputs} {layer}": str(save_tiny_adapter(place / f"{inputs}{layer}", model, layer, inputs))
        for inputs, layer in (("state", 2), ("state+token", 2), ("state+token", 4))
    }


def engine(model: Any, adapters: dict[str, str], drafter: str, options: dict[str, Any]) -> Engine:
    given = dict(options)
    if "adapter" in given:
        given["adapter"] = adapters[given["adapter"]]
    if "model" in given:
        given["model"] = tiny_model("llama", seed=given["model"], num_hidden_layers=1)
    return load(model, drafter=drafter, drafter_options=given)


def read(built: Engine, ids: Sequence[int], given: int, before: Sequence[int] = ()) -> Rows:
    async def rows() -> AsyncGenerator[Rows]:
        with built.borrow(ids) as (_, drafter):
            if before:
                await drafter.read(before, given)
            yield await drafter.read(ids, given)

    return next(drive(rows()))


def drafted(built: Engine, ids: Sequence[int], count: int) -> list[Step]:
    async def steps() -> AsyncGenerator[list[Step]]:
        with built.borrow(ids) as (target, drafter):
            await target.sync(ids[:-1], drafter.taps)
            found: list[Step] = []
            async for step in drafter.draft(Context(list(ids), Seeded(0), Sampling())):
                found.append(step)
                if len(found) == count:
                    break
            yield found

    return next(drive(steps()))


FIRST = [
    ("draft_model", {"model": 7}),
    ("self", {"exit_layer": 2}),
    ("self", {"skip_attention": (1,), "skip_mlp": (1, 2)}),
    ("exit_adapter", {"adapter": "state 2"}),
    ("hybrid", {"then": "self", "exit_layer": 1}),
]
TWO = [*FIRST[:2], *(("exit_adapter", {"adapter": name}) for name in ("state 2", "state+token 2", "state+token 4"))]


@pytest.mark.parametrize(("drafter", "options"), FIRST)
def test_each_row_is_the_first_of_a_draft_there(
    model: Any, adapters: dict[str, str], drafter: str, options: dict[str, Any]
) -> None:
    built = engine(model, adapters, drafter, options)
    rows = read(built, TEXT, GIVEN)
    alone = built if drafter != "hybrid" else engine(model, adapters, "self", {"exit_layer": 1})

    assert len(rows.logits) == len(rows.hidden) == len(TEXT) - GIVEN + 1
    for row in range(len(rows.logits)):
        step = drafted(alone, TEXT[: GIVEN + row], 1)[0]
        torch.testing.assert_close(rows.logits[row], step.logits[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(rows.hidden[row], step.hidden[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("drafter", "options"), TWO)
def test_the_row_of_a_drafted_token_is_the_second_of_the_draft(
    model: Any, adapters: dict[str, str], drafter: str, options: dict[str, Any]
) -> None:
    built = engine(model, adapters, drafter, options)
    for end in (GIVEN, len(TEXT)):
        steps = drafted(built, TEXT[:end], 2)
        rows = read(built, [*TEXT[:end], steps[0].tokens[0]], GIVEN)
        torch.testing.assert_close(rows.logits[-1], steps[1].logits[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(rows.hidden[-1], steps[1].hidden[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("drafter", "options"), TWO)
def test_a_text_reads_alike_after_another(
    model: Any, adapters: dict[str, str], drafter: str, options: dict[str, Any]
) -> None:
    built = engine(model, adapters, drafter, options)
    other = [*TEXT[:2], 60, 61, 50, 51, 52]

    first, again = read(built, TEXT, GIVEN).logits, read(built, TEXT, GIVEN, before=other).logits
    torch.testing.assert_close(first, again, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("drafter", ["lookup", "none"])
def test_a_drafter_without_rows_says_so(model: Any, drafter: str) -> None:
    with pytest.raises(UnsupportedOption, match="can't read a text in one pass; draft with draft_model, self"):
        read(load(model, drafter=drafter), TEXT, GIVEN)


def test_drafters_that_differ_have_different_identities(model: Any, adapters: dict[str, str]) -> None:
    asked = [*TWO, FIRST[2], ("draft_model", {"model": 8}), ("self", {"exit_layer": 3}), ("self", {})]
    asked += [("self", {"skip_mlp": (1,)}), ("self", {"skip_attention": (1,)})]
    names = [engine(model, adapters, drafter, options).pair.drafter for drafter, options in asked]

    assert len(set(names)) == len(asked)
    assert all(names)
    assert names[0] == engine(model, adapters, *TWO[0]).pair.drafter


def test_a_part_of_the_vocabulary_is_another_drafter(tmp_path: Path) -> None:
    built = load(save_tiny(tmp_path / "model"))
    asked: list[dict[str, Any]] = [{"exit_layer": 2, "vocabulary": size} for size in (50, 60)]
    asked += [{"exit_layer": 2}, {"weights": "int8"}]

    assert len({built.using("self", drafter_options=options).pair.drafter for options in asked}) == len(asked)
    again = load(tmp_path / "model", drafter="self", drafter_options=asked[1])
    assert again.pair == built.using("self", drafter_options=asked[1]).pair


def test_who_drafts_after_a_lookup_is_who_drafts_alone(model: Any, adapters: dict[str, str]) -> None:
    both = engine(model, adapters, "hybrid", {"then": "self", "exit_layer": 2})

    assert both.pair.drafter == engine(model, adapters, "self", {"exit_layer": 2}).pair.drafter


def test_the_same_adapter_from_another_place_is_the_same(model: Any, adapters: dict[str, str], tmp_path: Path) -> None:
    again = {"state 2": str(save_tiny_adapter(tmp_path / "again", model, 2, "state"))}
    options = {"adapter": "state 2"}

    one, other = (engine(model, place, "exit_adapter", options).pair for place in (adapters, again))
    assert one == other

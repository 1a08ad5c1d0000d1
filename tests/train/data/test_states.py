"""States on disk: what they are, and that kills and full disks cost one text at most."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import load
from forerun.testing import tiny_model
from forerun.train.data.states import StateStore, holds_texts, name_of, record_missing, recorder

from ..adapting import LAYERS, answered, engine, states_of

WIDTH = 32
TEXTS = ((1, 2, 3), (4, 5), (6, 7, 8, 9))


def opened(path: Path, layers: tuple[int, ...] = (2, LAYERS), model: str = "one") -> StateStore:
    return StateStore(path, layers, WIDTH, model)


def rows(ids: tuple[int, ...], layer: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(ids) + layer)
    return torch.randn(len(ids), WIDTH, generator=generator).bfloat16()


def fill(path: Path, texts: tuple[tuple[int, ...], ...] = TEXTS) -> None:
    store = opened(path)
    for ids in texts:
        store.add(ids, {layer: rows(ids, layer) for layer in store.layers})
    store.close()


def held(path: Path) -> list[tuple[int, ...]]:
    """The texts that are there, all of whose states are right."""
    store = opened(path)
    found = [ids for ids in TEXTS if ids in store]
    for ids in found:
        for layer in store.layers:
            assert torch.equal(store.read(ids, layer), rows(ids, layer))
    assert store.rows == sum(len(ids) for ids in found)
    store.close()
    return found


def test_what_was_added_is_there_when_opened_again(tmp_path: Path) -> None:
    fill(tmp_path / "deep" / "states")
    assert held(tmp_path / "deep" / "states") == list(TEXTS)


def test_a_known_text_is_left_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path)
    store = opened(tmp_path)
    store.add(TEXTS[0], {layer: torch.zeros(3, WIDTH) for layer in store.layers})
    store.close()
    assert held(tmp_path) == list(TEXTS)


def test_a_text_that_is_not_held_is_a_key_error(tmp_path: Path) -> None:
    fill(tmp_path)
    store = opened(tmp_path)
    with pytest.raises(KeyError):
        store.read((1, 2), 2)
    store.close()


def test_a_kill_while_a_line_is_written_loses_one_text(tmp_path: Path) -> None:
    fill(tmp_path)
    index = tmp_path / "index.jsonl"
    index.write_bytes(index.read_bytes()[:-9])
    assert held(tmp_path) == list(TEXTS[:2])
    fill(tmp_path)
    assert held(tmp_path) == list(TEXTS)


def test_a_kill_while_rows_are_written_loses_one_text(tmp_path: Path) -> None:
    fill(tmp_path, TEXTS[:2])
    with (tmp_path / "layer-2.bf16").open("ab") as file:
        file.write(b"half a row")
    assert held(tmp_path) == list(TEXTS[:2])
    assert (tmp_path / "layer-2.bf16").stat().st_size == 5 * WIDTH * 2
    fill(tmp_path)
    assert held(tmp_path) == list(TEXTS)


def test_rows_that_the_index_names_and_that_are_not_there_are_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    file = tmp_path / f"layer-{LAYERS}.bf16"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"layer-4.bf16 is shorter than its index says; delete .* and make it again"):
        opened(tmp_path)


@pytest.mark.parametrize(("layers", "model"), [((2, LAYERS), "other"), ((1, LAYERS), "one")])
def test_another_models_states_and_other_layers_are_refused(
    tmp_path: Path, layers: tuple[int, ...], model: str
) -> None:
    fill(tmp_path)
    with pytest.raises(ValueError, match=r"holds states of .*'model': 'one'.*; name another directory"):
        opened(tmp_path, layers, model)


def test_a_store_with_more_layers_than_needed_serves(tmp_path: Path) -> None:
    fill(tmp_path)
    store = StateStore.opened(tmp_path, [LAYERS], WIDTH, "one")
    assert torch.equal(store.read(TEXTS[1], LAYERS), rows(TEXTS[1], LAYERS))
    store.close()
    with pytest.raises(ValueError, match=r"holds states of the layers \[2, 4\], and \[3\] are needed"):
        StateStore.opened(tmp_path, [3, LAYERS], WIDTH, "one")
    with pytest.raises(ValueError, match="name another directory"):
        StateStore.opened(tmp_path, [2], WIDTH, "another")


def test_a_new_store_holds_the_layers_that_are_asked_for(tmp_path: Path) -> None:
    store = StateStore.opened(tmp_path / "new", [LAYERS, 1], WIDTH, "one")
    assert (store.layers, store.rows) == ((1, LAYERS), 0)
    store.close()


def test_a_full_disk_is_told_and_corrupts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, TEXTS[:2])
    store = opened(tmp_path)
    real = Path.open

    class Full:
        """Takes a few bytes of what is written."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def truncate(self, size: int) -> None:
            self.file.truncate(size)

        def write(self, data: bytes) -> None:
            self.file.write(data[:5])
            raise OSError(errno.ENOSPC, "No space left on device")

    def full(self: Path, *mode: Any, **options: Any) -> Any:
        file = real(self, *mode, **options)
        return Full(file) if self.name == "layer-4.bf16" else file

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(ValueError, match=r"can't write to .*layer-4.bf16: .*No space left.*before is whole"):
            store.add(TEXTS[2], {layer: rows(TEXTS[2], layer) for layer in store.layers})
    # there is room again
    store.add(TEXTS[2], {layer: rows(TEXTS[2], layer) for layer in store.layers})
    store.close()
    assert held(tmp_path) == list(TEXTS)


def test_recorded_states_are_those_of_a_fresh_forward(tmp_path: Path) -> None:
    texts = [one.ids for one in answered()]
    store = opened(tmp_path)
    ticks: list[int] = []
    record_missing(engine(), store, texts, lambda: ticks.append(1), max_batch=3)
    assert len(ticks) == len(texts)
    for ids in texts:
        for layer in store.layers:
            assert torch.equal(store.read(ids, layer), states_of(engine().runner, ids, layer).bfloat16())
    record_missing(engine(), store, texts, lambda: pytest.fail("nothing is missing"))
    store.close()


@pytest.mark.parametrize("drafter", ["none", "lookup"])
def test_an_answers_states_come_by_while_it_is_written(drafter: str) -> None:
    """Beforehand the pool holds texts whose states nobody kept."""
    model = load(tiny_model("llama"), drafter=drafter)
    prompts = [list(one.ids[: one.start]) for one in answered()]
    model.generate(prompts, max_new_tokens=3)
    kept: dict[tuple[int, ...], dict[int, torch.Tensor]] = {}

    def keep(ids: tuple[int, ...], states: Any) -> None:
        kept[ids] = {layer: rows.clone() for layer, rows in states.items()}

    results = model.using(recorder((2, LAYERS), keep)).generate(prompts, max_new_tokens=12)
    texts = {(*prompt, *result.ids[:-1]) for prompt, result in zip(prompts, results, strict=True)}
    assert set(kept) == texts == {one.ids[:-1] for one in answered()}
    for ids, states in kept.items():
        for layer, own in states.items():
            torch.testing.assert_close(own, states_of(model.runner, ids, layer), atol=1e-4, rtol=1e-4)


def test_a_full_disk_while_recording_ends_the_run_with_its_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)

    def full(*given: Any) -> None:
        raise ValueError("can't write")

    monkeypatch.setattr(StateStore, "add", full)
    with pytest.raises(ValueError, match="can't write"):
        record_missing(engine(), store, [one.ids for one in answered()], lambda: None)
    store.close()


def test_a_store_holds_texts_as_soon_as_its_index_names_one(tmp_path: Path) -> None:
    assert not holds_texts(tmp_path)
    store = opened(tmp_path)
    assert not holds_texts(tmp_path)
    store.add(TEXTS[0], {layer: rows(TEXTS[0], layer) for layer in store.layers})
    assert holds_texts(tmp_path)
    store.close()
    with (tmp_path / "index.jsonl").open("a") as file:
        file.write('{"name": "cut off')
    assert holds_texts(tmp_path)


def test_names_follow_from_the_tokens_alone() -> None:
    assert name_of([1, 2]) == name_of((1, 2)) != name_of((2, 1))
    assert len(name_of(())) == 16

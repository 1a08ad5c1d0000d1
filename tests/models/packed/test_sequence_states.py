"""A sequence keeps the states of its rows at the layers that are tapped, beside their keys and values."""

from __future__ import annotations

import pytest
from torch import Tensor

from forerun.core.values import ROOT
from forerun.models.packed.layers import decoder_layers
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.runner import CHUNK, HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import VOCABULARY, tiny_model

from ..running import chain, finish, off, own_logits, text

EXIT = LayerPlan.early_exit(2, 4)
TAPS = frozenset({2, 4})


def own_states(model, ids: list[int], layer: int) -> Tensor:
    """What a layer is given (layer 4: what the last one gives), [len(ids), D], of transformers' own forward."""
    seen: list[Tensor] = []
    layers = decoder_layers(model)
    if layer < len(layers):
        handle = layers[layer].register_forward_pre_hook(lambda module, args: seen.append(args[0][0]))
    else:
        handle = layers[-1].register_forward_hook(lambda module, args, out: seen.append(out[0]))
    own_logits(model, ids)
    handle.remove()
    return seen[0].reshape(len(ids), -1)


def assert_states(sequence: Sequence, model) -> None:
    for layer in TAPS:
        assert off(sequence.states(layer), own_states(model, sequence.ids, layer)) < 1e-4


def test_states_are_kept_where_they_are_tapped(runner: HFRunner, model) -> None:
    sequence = Sequence(runner)
    finish(sequence.sync(text(10), TAPS))
    assert_states(sequence, model)
    finish(sequence.complete([1, 2, 3, 4], [ROOT, 0, 0, 2], TAPS))
    sequence.keep([0, 2])
    assert sequence.ids == [*text(10), 1, 3]
    assert_states(sequence, model)
    with pytest.raises(ValueError, match="states are known of 0 tokens, and 12 were asked for"):
        sequence.states(1)


def test_states_of_long_texts_are_kept_chunk_by_chunk() -> None:
    long = tiny_model("llama", max_position_embeddings=2048)
    sequence = Sequence(HFRunner(long), capacity=16)
    finish(sequence.sync(text(CHUNK + 5), TAPS))
    assert_states(sequence, long)


def test_drafted_rows_that_are_resumed_keep_their_states(runner: HFRunner, model) -> None:
    sequence, taps = Sequence(runner), frozenset({2})
    finish(sequence.sync(text(10), taps))
    rows = finish(sequence.forward([1], plan=EXIT, taps=taps, want=0))
    assert rows.logits.shape == (0, VOCABULARY)
    assert off(rows.taps[2], own_states(model, [*text(10), 1], 2)[-1:]) < 1e-4
    finish(sequence.forward([2], plan=EXIT, taps=taps, want=0))
    finish(sequence.complete([1, 2, 3], chain(3), taps))
    sequence.keep([0, 1, 2])
    assert off(sequence.states(2), own_states(model, sequence.ids, 2)) < 1e-4


@pytest.mark.parametrize("untapped", ["sync", "complete"])
def test_rows_without_taps_make_states_unknown_until_they_are_synced_with(
    runner: HFRunner, model, untapped: str
) -> None:
    sequence = Sequence(runner)
    finish(sequence.sync(text(6), TAPS))
    if untapped == "sync":
        finish(sequence.sync(text(9)))
    else:
        finish(sequence.complete(text(9)[6:], chain(3)))
        sequence.keep([0, 1, 2])
    with pytest.raises(ValueError, match=r"states are known of [56] tokens, and 9 were asked for"):
        sequence.states(2)
    rows = finish(sequence.sync(text(9), TAPS))
    assert off(rows.logits, own_logits(model, text(9))[-1:]) < 1e-4
    assert_states(sequence, model)


def test_states_follow_any_turn_of_the_text(runner: HFRunner, model) -> None:
    sequence = Sequence(runner)
    for ids in (text(10), text(10)[:4], [*text(10)[:4], 7, 8, 9], text(3, 5), [*text(3, 5), *text(70, 6)]):
        finish(sequence.sync(ids, TAPS))
        assert_states(sequence, model)


def test_rows_for_the_last_ones_only_are_given_where_so_many_are_wanted(runner: HFRunner, model) -> None:
    sequence = Sequence(runner)
    finish(sequence.sync(text(10)))
    rows = finish(sequence.forward([1, 2, 3], taps=frozenset({1}), want=1))
    assert off(rows.logits, own_logits(model, [*text(10), 1, 2, 3])[-1:]) < 1e-4
    assert rows.taps[1].shape == (3, 32)

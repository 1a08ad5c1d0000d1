"""What native code is given wrongly comes back as a status, and nothing of it is used."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref
from typing import Any

import pytest
import torch

from forerun.models.lean.native.views import CallView
from forerun.models.packed.sequence import Sequence

from ...running import chain, finish, text, together
from .kernels import native, needs_kernels

pytestmark = needs_kernels
Change = Callable[[CallView], None]
BAD_TOKEN, BAD_SHAPE, BAD_MODEL = 1, 3, 4


def status(change: Change, monkeypatch: pytest.MonkeyPatch) -> int:
    """What a call of two sequences gives that was changed on its way."""
    runner = native("llama")
    step = runner._step
    assert step is not None
    seen: list[int] = []
    real = step.library.functions.forerun_forward

    class Changing:
        def __getattr__(self, name: str) -> Any:
            return getattr(step.library.functions, name)

        def forerun_forward(self, call: Any, space: Any) -> int:
            # the step keeps its own for the next forward
            view = CallView.from_buffer_copy(call)
            change(view)
            seen.append(real(byref(view), space))
            return 0

    first, second = Sequence(runner), Sequence(runner)
    finish(first.sync(text(9)))
    library = type(step.library)("changed", Changing())
    monkeypatch.setattr(step, "library", library)
    together(first.complete(text(3), [-1, 0, 0]), second.complete(text(4), chain(4)))
    monkeypatch.undo()
    return seen[-1]


def field(name: str, value: Any) -> Change:
    return lambda call: setattr(call, name, value)


def part(name: str, value: Any, index: int = 0) -> Change:
    return lambda call: setattr(call.parts[index], name, value)


def model(name: str, value: Any) -> Change:
    return lambda call: setattr(_own(call), name, value)


def _own(call: CallView) -> Any:
    """A copy of the model, so that others keep theirs."""
    copy = type(call.model.contents).from_buffer_copy(call.model.contents)
    call.model = ctypes.pointer(copy)
    return copy


def layer(name: str, value: Any) -> Change:
    def change(call: CallView) -> None:
        own = _own(call)
        layers = (type(own.layer[0]) * own.layers)(*(own.layer[i] for i in range(own.layers)))
        matrix = getattr(layers[1], name)
        if isinstance(value, dict):
            for key, changed in value.items():
                setattr(matrix, key, changed)
        else:
            setattr(layers[1], name, value)
        own.layer = layers

    return change


def array(name: str, kind: Any, *values: int) -> Change:
    made = (kind * len(values))(*values)
    return lambda call: setattr(call, name, ctypes.addressof(made) if made else None)


def depths(*values: int) -> Change:
    made = (ctypes.c_int32 * len(values))(*values)
    return lambda call: setattr(call.parts[0], "depths", ctypes.addressof(made) if made else None)


def unseen(call: CallView) -> None:
    """A row of the tree that doesn't see itself."""
    made = (ctypes.c_uint8 * 9)(1, 0, 0, 1, 1, 0, 1, 0, 0)
    call.parts[0].ancestors = ctypes.addressof(made)
    call.__dict__["kept"] = made


SHAPES: dict[str, Change] = {
    **{f"{name} {value}": field(name, value) for name in ("rows", "num_parts", "threads") for value in (0, -1)},
    **{f"no {name}": field(name, None) for name in ("tokens", "skips_attention", "skips_mlp", "wanted", "turns")},
    **{f"no {name}": field(name, None) for name in ("head", "logits", "hidden", "parts")},
    **{f"terms {value}": field("terms", value) for value in (0, 3)},
    **{f"end {value}": field("end", value) for value in (-1, 5)},
    "more rows than parts have": field("rows", 8),
    "a negative number of wanted rows": field("num_wanted", -1),
    "a wanted row too far": array("wanted", ctypes.c_int32, 0, 1, 2, 3, 4, 5, 7),
    "taps that nobody gave": field("num_taps", 1),
    "a negative number of taps": field("num_taps", -1),
    **{f"a part with no {name}": part(name, None) for name in ("keys", "values", "depths")},
    **{
        f"a part with {name} {value}": part(name, value) for name in ("n", "first", "committed") for value in (-1, 9999)
    },
    "a part without rows": part("n", 0),
    "no room": part("capacity", 0),
    "room for part of a block": part("capacity", 65, 1),
    "states that nobody gave": part("resumed", 1, 1),
    "more resumed rows than rows": part("resumed", 9, 1),
    "an entry after the last layer": part("enter", 9, 1),
    "a negative depth": depths(0, -1, 1),
    "a depth that no path has": depths(0, 2, 1),
    "a depth that its path has not": depths(0, 1, 2),
    "a row that does not see itself": unseen,
    "a chain that is none": part("ancestors", None),
}
MODELS: dict[str, Change] = {
    "no model": field("model", None),
    **{f"{name} 0": model(name, 0) for name in ("layers", "width", "heads", "kv_heads", "head_dim", "mlp", "vocab")},
    **{f"{name} 31": model(name, 31) for name in ("width", "heads", "head_dim", "mlp", "vocab")},
    "an unknown activation": model("activation", 2),
    "no last norm": model("final_norm", None),
    "no layers at all": model("layer", None),
    "a matrix without data": layer("qkv", {"data": None}),
    "a matrix of another width": layer("out", {"columns": 64}),
    "a matrix of other rows": layer("down", {"features": 16}),
    "a matrix between two lines": layer("gate_up", {"data": 4096 + 32}),
    "a norm of queries alone": layer("query_norm", 4096),
}


@pytest.mark.parametrize("name", SHAPES)
def test_rows_that_do_not_fit_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(SHAPES[name], monkeypatch) == BAD_SHAPE


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_does_not_fit_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(MODELS[name], monkeypatch) == BAD_MODEL


@pytest.mark.parametrize("token", [-1, 97])
def test_a_token_that_is_none_is_refused(token: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(array("tokens", ctypes.c_int32, 1, 2, 3, 4, 5, 6, token), monkeypatch) == BAD_TOKEN


@pytest.mark.parametrize("id_", [-1, 97])
def test_a_restricted_head_has_tokens_of_the_vocabulary(id_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.zeros(97, dtype=torch.long)
    ids[96] = id_
    assert status(field("ids", ids.data_ptr()), monkeypatch) == BAD_SHAPE


def test_what_is_right_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(lambda call: None, monkeypatch) == 0


def test_nothing_at_all_is_refused_everywhere() -> None:
    step = native("llama")._step
    assert step is not None
    functions, head = step.library.functions, step._models[""][0].embedding
    room = torch.zeros(64)
    assert functions.forerun_forward(None, step._workspace) == BAD_MODEL
    assert functions.forerun_forward(None, None) != 0
    for w, x, rows, y, terms, threads in [
        (None, room.data_ptr(), 1, room.data_ptr(), 2, 1),
        (byref(head), None, 1, room.data_ptr(), 2, 1),
        (byref(head), room.data_ptr(), 1, None, 2, 1),
        (byref(head), room.data_ptr(), 0, room.data_ptr(), 2, 1),
        (byref(head), room.data_ptr(), 1, room.data_ptr(), 3, 1),
        (byref(head), room.data_ptr(), 1, room.data_ptr(), 2, 0),
    ]:
        assert functions.forerun_linear(w, x, rows, y, terms, threads) == BAD_SHAPE
    assert functions.forerun_read(None, 64, 1) == 0
    assert functions.forerun_read(room.data_ptr(), -64, 1) == 0

"""Finds the layers and sublayers of a transformers decoder, and wraps them so that they can be skipped.

Each decoder layer of forerun's own copy of the module tree is wrapped once. The wrapper reads the Packed state from the
call's keyword arguments. It keeps tapped states, passes resumed rows through below their layer, and skips what the plan
leaves out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from typing import Any, final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ...errors import UnsupportedModel
from .cached_attention import added_mask, carried
from .forward import Packed, PackedMask, Running
from .mask import Pattern

ATTENTION_NAMES = ("self_attn", "attn", "attention", "self_attention")
MLP_NAMES = ("mlp", "feed_forward", "block_sparse_moe")


def decoder_layers(model: Any) -> nn.ModuleList:
    """The list of decoder layers, found by its length; an image tower may have as many."""
    wanted = model.config.get_text_config().num_hidden_layers
    decoder = model.get_decoder() if isinstance(model, PreTrainedModel) else None
    for module in (*(() if decoder is None else decoder.modules()), *model.modules()):
        if isinstance(module, nn.ModuleList) and len(module) == wanted:
            return module
    raise UnsupportedModel(f"{type(model).__name__} has no list of its {wanted} decoder layers")


def own_attention(layer: nn.Module) -> nn.Module | None:
    """A layer's attention over its own text, None where it isn't known by its name."""
    return _child(layer, ATTENTION_NAMES)


def attention_sublayer(layer: nn.Module) -> nn.Module:
    found = own_attention(layer)
    if found is None:
        raise UnsupportedModel(
            f"{type(layer).__name__} has no attention under any of the names {', '.join(ATTENTION_NAMES)}"
        )
    return found


def mlp_sublayers(layer: nn.Module) -> list[nn.Module]:
    """The modules to skip so that the MLP contributes zero; OPT has no module around its two projections."""
    found = _child(layer, MLP_NAMES)
    if found is not None:
        return [found]
    projections = [_child(layer, (name,)) for name in ("fc1", "fc2")]
    if all(isinstance(projection, nn.Linear) for projection in projections):
        return [projection for projection in projections if projection is not None]
    raise UnsupportedModel(
        f"{type(layer).__name__} has no MLP under any of the names {', '.join(MLP_NAMES)}, fc1 and fc2"
    )


def _child(layer: nn.Module, names: tuple[str, ...]) -> nn.Module | None:
    return next((child for name, child in layer.named_children() if name in names), None)


@final
class OutputFormat:
    """The form of a module's output: a tensor, or a tuple that starts with one. Known once the module has run."""

    def __init__(self) -> None:
        self.known = False
        self._others: int | None = None

    def learn(self, out: Any) -> None:
        self._others = len(out) - 1 if isinstance(out, tuple) else None
        self.known = True  # last, since other threads ask it first

    def of(self, state: Tensor) -> Any:
        return state if self._others is None else (state, *[None] * self._others)


@final
class SublayerSkipper:
    """Replaces a sublayer's forward: while skipped() holds for the running call, it gives zeros of the same form."""

    def __init__(self, module: nn.Module, skipped: Callable[[], bool]) -> None:
        self._skipped = skipped
        self._module = module
        self._forward = call_with_hooks(module)
        self._output_format = OutputFormat()
        module.forward = self._run

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        skipped = self._skipped()
        if not skipped or not self._output_format.known:
            out = self._forward(*args, **kwargs)
            self._output_format.learn(out)
            return self._output_format.of(torch.zeros_like(state_of(out))) if skipped else out
        hidden: Tensor = args[0] if args else kwargs["hidden_states"]
        width = self._module.out_features if isinstance(self._module, nn.Linear) else hidden.shape[-1]
        return self._output_format.of(hidden.new_zeros(*hidden.shape[:-1], width))


@final
class WrappedLayer:
    """A wrapped decoder layer. own_mask: given for an attention that asks a cache for its keys.

    unskippable says why its sublayers can't be left out; "" if they can.
    """

    def __init__(self, layer: nn.Module, index: int, last: bool, own_mask: Pattern | None = None) -> None:
        self._index = index
        self._last = last
        self._own_mask = own_mask
        self.unskippable = ""
        self._running = Running()
        try:
            SublayerSkipper(attention_sublayer(layer), self._skips_attention)
            for module in mlp_sublayers(layer):
                SublayerSkipper(module, self._skips_mlp)
        except UnsupportedModel as error:
            self.unskippable = str(error)
        self._forward = call_with_hooks(layer)
        self._output_format = OutputFormat()
        layer.forward = self._run

    def _run(self, hidden: Tensor | None = None, *args: Any, packed: Packed | None = None, **kwargs: Any) -> Any:
        if hidden is None:
            raise UnsupportedModel("the model doesn't hand its states to its layers as their first argument")
        if packed is None:
            packed = carried((*args, *kwargs.values()))
        if packed is None:
            raise UnsupportedModel("the model doesn't hand its keyword arguments to its layers, nor a cache")
        if hidden.ndim != 3:
            raise UnsupportedModel(f"its layers hand on {hidden.shape[0]} streams of states, and forerun knows one")
        if self._index == 0:
            hidden = packed.bring_entries(hidden)
        if self._index in packed.taps:
            packed.hidden[self._index] = hidden[0]
        out = self._run_rows(hidden, args, kwargs, packed)
        if self._last and self._index + 1 in packed.taps:
            packed.hidden[self._index + 1] = state_of(out)[0]
        return out

    def _run_rows(self, hidden: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], packed: Packed) -> Any:
        skipped = packed.plan.skips_layer(self._index)
        rows = packed.active(self._index)
        if self._output_format.known and (skipped or rows == []):
            return self._output_format.of(hidden)
        with self._running.during(packed):
            if rows is None:
                out = self._call(hidden, args, kwargs, packed)
                self._output_format.learn(out)
                return self._output_format.of(hidden) if skipped else out
            index = torch.tensor(rows, device=hidden.device)
            total = hidden.shape[1]
            some = [taken(value, index, total, 1) for value in (hidden, *args)]
            named = {name: taken(value, index, total, 1) for name, value in kwargs.items()}
            out = self._call(some[0], tuple(some[1:]), named, packed)
            self._output_format.learn(out)
            return self._output_format.of(hidden.index_copy(1, index, state_of(out)))

    def _call(self, hidden: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], packed: Packed) -> Any:
        """The layer's own forward, with a mask that its attention understands."""
        if self._own_mask is None:
            kwargs = {**kwargs, "packed": packed}
        elif not any(isinstance(value, Pattern) for value in (*args, *kwargs.values())):
            raise UnsupportedModel("the model doesn't hand its mask to its layers")
        some = [self._mask(value, packed, hidden) for value in args]
        named = {name: self._mask(value, packed, hidden) for name, value in kwargs.items()}
        return self._forward(hidden, *some, **named)

    def _mask(self, value: Any, packed: Packed, hidden: Tensor) -> Any:
        """The mask to pass to the layer; other values unchanged."""
        if not isinstance(value, Pattern):
            return value
        if self._own_mask is None:
            packed.patterns[self._index] = value
            return PackedMask(value, packed)
        if Pattern() not in (self._own_mask, value):
            raise UnsupportedModel("a layer has two masks, both more than causal")
        pattern = packed.patterns[self._index] = value if self._own_mask == Pattern() else self._own_mask
        return added_mask(packed, self._index, pattern, hidden)

    def _skips_attention(self) -> bool:
        packed = self._running.packed
        return packed is not None and self._index in packed.plan.attention

    def _skips_mlp(self) -> bool:
        packed = self._running.packed
        return packed is not None and self._index in packed.plan.mlp


def call_with_hooks(module: nn.Module) -> Callable[..., Any]:
    """A module's call with its hooks, which are removed from the module itself.

    So a replacement of the forward that skips the module also skips its hooks.
    """
    if not module._forward_hooks and not module._forward_pre_hooks:
        return module.forward
    hooked = copy(module)
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        setattr(module, name, OrderedDict())
    return hooked


def state_of(out: Any) -> Tensor:
    """The hidden states in a layer's output: a tensor, or the first of a tuple."""
    state: Tensor = out[0] if isinstance(out, tuple) else out
    return state


def taken(value: Any, chosen: Tensor, count: int, dim: int) -> Any:
    """Selects some of the `count` rows or samples along dim from a layer's arguments: tensors, and tuples of them.

    Arguments with another size there are shared by all rows, and returned unchanged.
    """
    if isinstance(value, Tensor) and value.ndim >= 2 and value.shape[dim] == count:
        return value.index_select(dim, chosen)
    if isinstance(value, tuple):
        return tuple(taken(part, chosen, count, dim) for part in value)
    return value

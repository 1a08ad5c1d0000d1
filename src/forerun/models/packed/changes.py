"""Detects, at the next request, that a model object changed after a runner was built on it.

A private copy shares the parameters alone. Whatever else a forward depends on (modules, their attributes and hooks,
buffers, configurations) is compared with a snapshot, by identity where it is immutable. Parameters written in place
are shared by the copy, but cached keys and values become stale. Such writes are detected by version counters, addresses in
memory and a few values of each parameter. For SmolLM2-135M the first takes a sixth of a millisecond, the second one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, final
from weakref import ref

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

SAMPLES = 64  # of a parameter
BUFFER_SAMPLES = 4096

# What a copy in evaluation mode that keeps its own keys and values doesn't read.
IGNORED = frozenset(
    {"training", "gradient_checkpointing", "_gradient_checkpointing_func", "use_cache", "generation_config"}
    | {"prepare_inputs_for_generation", "_attn_implementation_internal", "_name_or_path", "_is_full_backward_hook"}
)
# torch's own attributes of a module, of which a forward reads these.
_OF_TORCH = frozenset(vars(nn.Module())) - {
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
}
_MISSING = object()
_PLAIN = (
    bool,
    int,
    float,
    str,
    bytes,
    tuple,
    list,
    dict,
    set,
    frozenset,
    type(None),
    Tensor,
    nn.Module,
    PreTrainedConfig,
)

Attributes = dict[str, Any]


@final
class ChangeDetector:
    """A snapshot of a model, to detect changes. It doesn't keep the model alive: model() is None once that is gone.

    Not for several threads at once.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = ref(model)
        modules = list(model.modules())
        self._modules = modules[1:]
        self._types = [type(one) for one in modules]
        self._root = _own(vars(model))
        self._attributes = [(vars(one), _remembered(vars(one))) for one in modules[1:]]
        self._attributes += [(vars(one), _remembered(vars(one))) for one in _configurations(modules)]
        self._forwards = {type(one): type(one).forward for one in modules}
        self._noisy = [one for one in modules[1:] if _noise(one)]
        self._single = [
            (vars(one)[kind], dict(vars(one)[kind]))
            for one in modules
            for kind in ("_parameters", "_buffers")
            if any(value is not None and value.numel() == 1 for value in vars(one)[kind].values())
        ]
        self._buffers = list(model.buffers())
        self._buffer_values = _values(self._buffers, BUFFER_SAMPLES)
        self._parameters = list(model.parameters())
        self._kinds = _kinds(self._parameters)
        self._places = [parameter.data_ptr() for parameter in self._parameters]
        self._marks = _marks(self._parameters)
        self._values = _values(self._parameters, SAMPLES)

    def changed(self) -> bool:
        """Whether anything but the values of the parameters changed."""
        model = self.model()
        if model is None:
            return False
        return (
            _differ(_own(vars(model)), self._root)
            or any(_differ(now, then) for now, then in self._attributes)
            or [type(one) for one in (model, *self._modules)] != self._types
            or any(kind.forward is not forward for kind, forward in self._forwards.items())
            or any(now.get(name) is not value for now, then in self._single for name, value in then.items())
            or self._moved()
            or not _equal(_values(self._buffers, BUFFER_SAMPLES), self._buffer_values)
        )

    def written(self, thoroughly: bool = True) -> bool:
        """Whether parameters were written in place since the last call; thoroughly: even if torch's counters are unchanged.

        Writes through `.data` don't change the counters. SAMPLES values of each parameter are compared.
        """
        marks = _marks(self._parameters)
        counted, self._marks = marks != self._marks, marks
        if not counted and not thoroughly:
            return False
        values, before = _values(self._parameters, SAMPLES), self._values
        self._values = values
        return counted or not _equal(values, before)

    def _moved(self) -> bool:
        """Whether parameters moved in memory and have another type, device or shape there."""
        places = [parameter.data_ptr() for parameter in self._parameters]
        if places != self._places and _kinds(self._parameters) != self._kinds:
            return True
        self._places = places
        return False

    def random(self) -> str | None:
        """What makes the model's text random now: dropout in training mode. None if nothing."""
        if self.model() is None:
            return None
        return next((_noise(module) for module in self._noisy if module.training), None)


def _configurations(modules: Sequence[nn.Module]) -> list[PreTrainedConfig]:
    found: dict[int, PreTrainedConfig] = {}

    def add(holder: Any) -> None:
        for value in vars(holder).values():
            if isinstance(value, PreTrainedConfig) and id(value) not in found:
                found[id(value)] = value
                add(value)

    for module in modules:
        add(module)
    return list(found.values())


def _own(attributes: Attributes) -> Attributes:
    """The model's own attributes; methods and other objects that may refer to the model are compared by identity."""
    remembered = _remembered(attributes)
    return {name: value if isinstance(value, _PLAIN) else id(value) for name, value in remembered.items()}


def _remembered(attributes: Attributes) -> Attributes:
    """The attributes, with containers copied so that changes inside are detected."""
    return {name: value if name in _OF_TORCH else _copied(value) for name, value in attributes.items()}


def _copied(value: Any) -> Any:
    if type(value) in (dict, OrderedDict):
        return {key: _copied(held) for key, held in value.items()}
    if type(value) is list:
        return [_copied(held) for held in value]
    return set(value) if type(value) is set else value


def _differ(now: Attributes, then: Attributes) -> bool:
    """Whether a module's or a configuration's attributes changed; ignored ones are updated."""
    if _same(now, then):
        return False
    for name in now.keys() | then.keys():
        if name not in IGNORED and not _same(now.get(name, _MISSING), then.get(name, _MISSING)):
            return True
    for name in IGNORED & now.keys():
        then[name] = now[name]
    return False


def _same(now: Any, then: Any) -> bool:
    try:
        return now is then or bool(now == then)
    except (RuntimeError, TypeError, ValueError):  # two tensors or arrays, which have no single answer
        return False


def _kinds(tensors: Sequence[Tensor]) -> list[tuple[object, ...]]:
    return [(tensor.dtype, tensor.device, tensor.shape) for tensor in tensors]


def _marks(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    """The address of each tensor, and torch's count of writes to it."""
    return [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]


@torch.inference_mode()
def _values(tensors: Sequence[Tensor], most: int) -> list[Tensor]:
    """Values of each tensor, evenly spread, joined by type and place."""
    groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        if not tensor.is_meta and tensor.numel():
            groups.setdefault((tensor.dtype, tensor.device), []).append(_spread(tensor, most))
    return [torch.cat(group) for group in groups.values()]


def _spread(tensor: Tensor, most: int) -> Tensor:
    count = tensor.numel()
    if not tensor.is_contiguous():
        return tensor.reshape(-1)[:: max(1, count // most)]
    if count <= most:
        return tensor.view(-1)
    step = (count - 1) // (most - 1)
    # an odd step, so that not all of the values stand in a few columns
    return tensor.as_strided((most,), (step - (step % 2 == 0),))


def _equal(now: Sequence[Tensor], then: Sequence[Tensor]) -> bool:
    return len(now) == len(then) and all(
        one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)
        for one, other in zip(now, then, strict=True)
    )


def _noise(module: nn.Module) -> str | None:
    """Why a module's output is random in training mode."""
    for name, value in _rates(module):
        if isinstance(value, float) and value > 0:
            return f"{type(module).__name__} with {name} {value:g}"
    return None


def _rates(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if "drop" in name or "jitter" in name or (name == "p" and "Drop" in type(module).__name__):
            yield name, value

"""A runner owns one Hugging Face model and computes packed forwards of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from threading import RLock
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedConfig

from ...core.choice import Chooser
from ...core.cost import Cost
from ...core.forward import Rows
from ...errors import UnsupportedModel, UnsupportedOption
from .attention import NAME
from .cached_attention import PackedCache, attends_by_itself, opened_attention
from .changes import ChangeDetector
from .forward import Packed, Part, Running
from .layers import WrappedLayer, decoder_layers
from .limits import max_length_of
from .mask import Pattern
from .plan import FULL, LayerPlan
from .request import Request
from .store import LayerStore, NoStore, Store

CHUNK = 512
LEAN = "carving needs the lean runner: load a Llama-shaped model by name or path, not as an object"


class Runner(ABC):
    """A model that answers requests. All requests of one call share a plan and their taps. Threads may share a runner.

    cost: the measured cost of whole forwards, if it was set. kernels: whose code computes. kernels_reason: why no faster
    kernels run, if there are such. same_bits: whether a row gives the same bits whatever rows are computed with it, so that
    rounding can't change a text. activations: in how many bits native products hold their rows; None elsewhere. chains:
    whether it computes the chains that requests may ask for. chunk: how many tokens of a text that is there already one
    forward reads.
    """

    cost: Cost | None = None
    kernels: str = "torch"
    kernels_reason: str = ""
    same_bits: bool = False
    activations: int | None = None
    chains: bool = False
    chunk: int = CHUNK
    num_layers: int
    vocab_size: int
    max_length: int | None
    device: torch.device
    dtype: torch.dtype
    name: str

    @property
    def step_nbytes(self) -> int | None:
        """Bytes of weights that a whole forward of a few rows reads; None where nobody counts them."""
        return None

    @property
    def version(self) -> int:
        """Counts detected changes of the weights: keys and values of another version are stale."""
        return 0

    @abstractmethod
    def execute(self, requests: Sequence[Request]) -> list[Rows]:
        """Run the requests as one packed forward."""

    def check_rows(self, tokens: Sequence[int], length: int) -> None:
        """Raise ValueError before a request that can't run reaches a batch with others.

        length is the highest position of a row, plus 1.
        """
        if not tokens:
            raise ValueError("a forward needs at least one token")
        for token in tokens:
            if not 0 <= token < self.vocab_size:
                raise ValueError(f"token ids must be in 0..{self.vocab_size - 1}, got {token}")
        if self.max_length is not None and length > self.max_length:
            raise ValueError(f"the text has {length} tokens and {self.name} holds {self.max_length}; shorten it")

    def new_store(self, capacity: int) -> Store:
        """Room for the keys and values of one sequence, `capacity` slots at first."""
        return LayerStore(self.num_layers, capacity)

    def use_activations(self, bits: int) -> None:
        """Hold the rows of native products in 8 or 16 bits, from before the first sequence on.

        Raises UnsupportedOption where there are no such products.
        """
        why = f" ({self.kernels_reason})" if self.kernels_reason else ""
        raise UnsupportedOption(
            f"activations are held in 8 or 16 bits in the native step alone, and {self.name} doesn't run there{why}; "
            "leave the option out"
        )

    @abstractmethod
    def add_weights(self, name: str) -> None:
        """Hold a smaller copy of the weights for plans that name it. Raises UnsupportedOption where there is none."""

    @abstractmethod
    def add_head(self, tokens: Sequence[int]) -> str:
        """Hold an output head for these tokens alone and give the name for plans; logits elsewhere are -inf.

        Raises UnsupportedOption where this runner can't.
        """

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """The rows of the embedding matrix as they are, float32 [len(ids), D]: for who drafts on the model's states."""

    @abstractmethod
    def head(self, hidden: Tensor, name: str = "") -> Tensor:
        """Logits float32 [n, V] of rows that the head reads [n, D]; name: one of add_head's, -inf elsewhere."""

    @abstractmethod
    def check_plan(self, plan: LayerPlan) -> None:
        """Raise UnsupportedModel if this model's sublayers can't be skipped as a plan says."""


def gather(
    hidden: Tensor,
    logits: Tensor,
    packed: Packed,
    requests: Sequence[Request],
    native: float = 0.0,
    chooser: Chooser | None = None,
) -> list[Rows]:
    """Give each request its rows. hidden and logits hold the wanted rows of all requests, in order.

    native, chooser: as in Rows.
    """
    # what fills up a forward is one more part
    if len(packed.parts) == 1:
        return [Rows(logits, hidden, packed.hidden, native=native, chooser=chooser)]
    results: list[Rows] = []
    wanted = offset = 0
    for request in requests:
        taps = {layer: rows[offset : offset + request.part.n] for layer, rows in packed.hidden.items()}
        own, inputs = logits[wanted : wanted + request.want], hidden[wanted : wanted + request.want]
        results.append(Rows(own, inputs, taps, native=native, chooser=chooser))
        wanted += request.want
        offset += request.part.n
    return results


def only(wanted: Tensor, rows: Tensor, total: int) -> Tensor:
    """The wanted rows of a model's output, which holds all rows if the model takes no logits_to_keep."""
    return rows if len(rows) == len(wanted) or len(rows) != total else rows[wanted]


def layout(requests: Sequence[Request], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Token ids [T], positions [T] and the flat indices of the wanted rows."""
    ids: list[int] = []
    positions: list[int] = []
    wanted: list[int] = []
    for request in requests:
        part = request.part
        ids += request.tokens
        positions += [part.committed + depth for depth in part.depths[part.first :]]
        wanted += range(len(ids) - request.want, len(ids))
    # a prefill chunk may want no row at all
    flat = [torch.tensor(values, dtype=torch.long, device=device) for values in (ids, positions, wanted)]
    return flat[0], flat[1], flat[2]


@final
class HFRunner(Runner):
    """Any decoder that uses transformers' attention interface, or a cache and an added mask.

    It works on a copy of the module tree that shares the parameters; the model that was passed in is not changed. Its
    own changes are detected, and follow.py applies them under the lock. unskippable: why no layer may be skipped, "" if any
    may. attended: the layers whose attention has used forerun's function so far; patterns: their masks. padding: rows -> the
    number of rows that a forward is padded to; None for no padding. (In bfloat16 one row can be slower than two.)
    """

    def __init__(self, model: Any, name: str = "") -> None:
        self.name = name or str(model.config.name_or_path or type(model).__name__)
        config = model.config.get_text_config()
        self.num_layers = int(config.num_hidden_layers)
        self.vocab_size = int(model.get_input_embeddings().weight.shape[0])
        self.device = model.device
        self.dtype = model.dtype
        self.max_length = max_length_of(model.config)
        self.attended: set[int] = set()
        self.patterns: dict[int, Pattern] = {}
        self.padding: Callable[[int], int] | None = None
        self.unskippable = ""
        self.lock = RLock()
        self.watch = ChangeDetector(model)
        self._version = 0
        self._copy = private_copy(model), Running()
        layers = decoder_layers(self.model)
        self._own_attention = attends_by_itself(layers[0])
        for index, layer in enumerate(layers):
            mask = opened_attention(layer, model.config._attn_implementation) if self._own_attention else None
            block = WrappedLayer(layer, index, last=index == len(layers) - 1, own_mask=mask)
            if block.unskippable:
                self.refuse_plans(block.unskippable)
        if getattr(config, "do_layer_norm_before", True) is False:
            self.refuse_plans("its layers normalise after their residual additions, so they can't be skipped")
        self.model.get_output_embeddings().register_forward_pre_hook(partial(_keep_head_input, self._copy[1]))

    @property
    def model(self) -> Any:
        """The copy that runs."""
        return self._copy[0]

    def check_plan(self, plan: LayerPlan) -> None:
        if plan.activations:
            self.use_activations(plan.activations)
        if plan != FULL and self.unskippable:
            raise UnsupportedModel(f"{self.name}: {self.unskippable}; draft with lookup or a draft model")

    def add_weights(self, name: str) -> None:
        raise UnsupportedOption(f"{self.name} runs on transformers' own modules, which have no {name} copy; {LEAN}")

    def add_head(self, tokens: Sequence[int]) -> str:
        raise UnsupportedOption(f"{self.name} runs on transformers' own modules, whose head is whole; {LEAN}")

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.model.get_input_embeddings().weight).float()

    @torch.inference_mode()
    def head(self, hidden: Tensor, name: str = "") -> Tensor:
        if name:
            raise UnsupportedOption(f"{self.name} has no restricted head {name!r}; {LEAN}")
        head = self.model.get_output_embeddings()
        logits: Tensor = F.linear(hidden.to(head.weight.dtype), head.weight, head.bias).float()
        return logits

    def refuse_plans(self, reason: str) -> None:
        """From now on only the whole model runs: skipping a sublayer does more than remove its contribution."""
        self.unskippable = reason

    @property
    def version(self) -> int:
        return self._version

    def renew(self) -> None:
        """The weights have changed: what was computed with the old ones is stale."""
        self._version += 1

    def become(self, fresh: HFRunner) -> None:
        """Continue with the state of fresh, a runner on the changed model."""
        self.max_length, self.attended, self.unskippable = fresh.max_length, fresh.attended, fresh.unskippable
        self.patterns, self._own_attention = fresh.patterns, fresh._own_attention
        self.watch, self._copy = fresh.watch, fresh._copy
        self.renew()

    @torch.inference_mode()
    def execute(self, requests: Sequence[Request]) -> list[Rows]:
        padded = self._padded(requests)
        packed = Packed([request.part for request in padded], requests[0].plan, requests[0].taps)
        ids, positions, wanted = layout(padded, self.device)
        model, running = self._copy
        carrier = {"cache": PackedCache(packed)} if self._own_attention else {"packed": packed}
        with running.during(packed):
            out = model(
                input_ids=ids[None],
                position_ids=positions[None],
                attention_mask=torch.ones_like(ids)[None],
                use_cache=False,
                logits_to_keep=wanted,
                **carrier,
            )
        self.attended |= packed.layers_seen
        self.patterns |= packed.patterns
        if packed.head_input is None:
            raise UnsupportedModel(f"{type(model).__name__} did not call its output head")
        own, logits = (only(wanted, rows[0], len(ids)) for rows in (packed.head_input, out.logits))
        return gather(own, logits, packed, requests)

    def _padded(self, requests: Sequence[Request]) -> Sequence[Request]:
        """The requests, and if padding asks for it one more of rows without a text, whose results are discarded."""
        rows = sum(request.part.n for request in requests)
        extra = 0 if self.padding is None else self.padding(rows) - rows
        if extra <= 0:
            return requests
        spare = Part(NoStore(), committed=0, first=0, n=extra, depths=list(range(extra)))
        return [*requests, Request(self, (0,) * extra, spare, want=0)]


def _keep_head_input(running: Running, module: torch.nn.Module, args: tuple[Tensor, ...]) -> None:
    if running.packed is not None:
        running.packed.head_input = args[0]


def private_copy(model: Any) -> Any:
    """The same parameters under a module tree, buffers and config of our own, set to forerun's attention."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    copy = deepcopy(model, shared).eval()
    for module in copy.modules():
        config = getattr(module, "config", None)
        if isinstance(config, PreTrainedConfig):
            config._attn_implementation = NAME
    return copy

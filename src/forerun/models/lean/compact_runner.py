"""A runner for a compact draft: its own layers between its target's embeddings and head, which lie in memory once.

It runs natively where its target does and its own weights can, else on torch's operations.
"""

from __future__ import annotations

from transformers import AutoConfig

from ...errors import InvalidModelFile, UnsupportedModel
from ..files.compact_draft import RANKING, CompactDraft
from ..packed.runner import HFRunner, Runner
from .adapter_runner import native_adapter
from .build import Decoder, layer_of, row_order
from .draft_weights import CompactSource
from .layers import Norm
from .linear import Linear, Plain, Table
from .native.library import Library
from .rope import Rotation
from .runner import LeanRunner, kernels_of
from .shape import Shape, shape_of
from .tables_runner import TablesRunner
from .weights import dense

FINAL_NORM = "model.norm.weight"


def compact_runner(draft: CompactDraft, base: Runner) -> LeanRunner:
    """The draft on its target's tables; base is the target, or what stands for one that runs elsewhere.

    Raises UnsupportedModel where the tables don't fit, InvalidModelFile on bad weights.
    """
    facts = draft.facts
    config = AutoConfig.for_model(**facts.config)
    shape = shape_of(config)
    embedding, head = _tables(base, shape, facts.name)
    native = native_adapter(shape, base, facts.weights)
    kernels = kernels_of(native)
    tensors = {name: tensor for name, tensor in draft.tensors.items() if name != RANKING}
    source = CompactSource(tensors, base.dtype, base.device, shape.norms.offset)
    # small weights have kernels for CPUs alone
    weights = facts.weights if base.device.type == "cpu" else ""
    rotation = Rotation(config, shape, base.device)
    order = row_order(shape, rotation.rotary_dim, base.device)
    layers = tuple(layer_of(source, shape, index, order, weights, kernels) for index in range(shape.num_layers))
    norm = Norm(dense(source.take(FINAL_NORM)).float() + source.offset, shape.eps)
    if left := source.left():
        raise InvalidModelFile(f"the draft {facts.name} holds a weight {left[0]} that has no place in it")
    runner = LeanRunner(shape, rotation, Decoder(embedding, layers, norm, head), f"the draft {facts.name}", native)
    if isinstance(native, Library):
        runner.use_activations(facts.activations)
    return runner


def _tables(base: Runner, shape: Shape, name: str) -> tuple[Table, Linear]:
    """The target's embedding and head. Raises UnsupportedModel unless they are of this shape."""
    if isinstance(base, LeanRunner):
        width, tables = base.shape.width, (base.decoder.embedding, base.decoder.head)
    elif isinstance(base, TablesRunner):
        width, tables = base.width, base.tables
    else:
        assert isinstance(base, HFRunner), "targets are one of these three"
        model = base.model
        embedding, output = (
            part.weight.detach() for part in (model.get_input_embeddings(), model.get_output_embeddings())
        )
        width, tables = embedding.shape[1], (Plain(embedding), Plain(output))
    if (shape.vocab_size, shape.width) != (base.vocab_size, width):
        raise UnsupportedModel(
            f"the draft {name} reads embeddings of {shape.vocab_size} x {shape.width} and {base.name} has "
            f"{base.vocab_size} x {width}"
        )
    return tables

"""What transformers tells about a checkpoint that it has read, and prints where forerun keeps it quiet.

It fills a model with what fits and goes on. Here a checkpoint that lacks weights, holds more than the model takes, or has
weights of another size is refused, with what transformers calls them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import UnsupportedModel

# Kept by old releases of transformers, and computed from the configuration today.
_COMPUTED = re.compile(
    r"(^|\.)(inv_freq|rotary_emb\.(cos|sin)_cached|masked_bias|position_ids|embed_positions|num_batches_tracked)$"
    r"|(^|\.)(attn|attention|self_attn|self_attention)\.(bias|causal_mask|rope\.freqs)$"
)
# What makes words of pictures and sounds, and the value of a text while a model is trained, beside a text model.
_NOT_TEXT = re.compile(
    r"(^|\.)(vision|visual|audio|image|speech|video|multi_modal|multimodal|mm)[a-z_]*(\.|$)|(^|\.)(vit|siglip|clip)[a-z_]*\."
    r"|(^|\.)v_head\."
)


def check_complete(model: Any, info: Mapping[str, Any], directory: Path) -> None:
    """Raise UnsupportedModel unless the checkpoint in directory holds what model takes, and nothing else that matters."""
    if missing := sorted(info["missing_keys"]):
        raise UnsupportedModel(
            f"{directory} lacks weights that a {type(model).__name__} needs, such as {missing[0]} ({len(missing)} in all)"
        )
    check_sizes(info, str(directory))
    for message in info.get("error_msgs", ()):
        reason = str(message).split("\n")[0]
        raise UnsupportedModel(f"{directory} has weights that a {type(model).__name__} can't take: {reason}")
    unexpected = [name for name in sorted(info["unexpected_keys"]) if not _harmless(name)]
    if unexpected:
        raise UnsupportedModel(
            f"{directory} holds weights that a {type(model).__name__} made from its config.json has no place for, such as "
            f"{unexpected[0]} ({len(unexpected)} in all); without them it would write other texts, so correct config.json"
        )


def check_sizes(info: Mapping[str, Any], name: str) -> None:
    """Raise UnsupportedModel, naming both sizes, where weights are of another size than the configuration says."""
    for key, found, wanted in sorted(info["mismatched_keys"], key=str):
        raise UnsupportedModel(
            f"{name} holds {key} as {_size(found)}, and its configuration makes it {_size(wanted)} "
            f"({len(info['mismatched_keys'])} such weights)"
        )


def _harmless(name: str) -> bool:
    """A head beside tied embeddings is no matter here: transformers takes it, untied where it says something else."""
    return bool(_COMPUTED.search(name) or _NOT_TEXT.search(name))


def _size(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))

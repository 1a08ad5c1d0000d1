"""A stand-in for a target that another engine runs: its embeddings and head, which compact drafts share.

They are read from its files, nothing else is, and nothing before a draft asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...core.forward import Rows
from ...core.identity import Identity, digest_of, digest_of_vocabulary
from ...errors import InvalidModelFile, UnsupportedModel, reason_of
from ..packed.plan import LayerPlan
from ..packed.request import Request
from ..packed.runner import Runner
from .linear import Linear, Table, make_head, make_table
from .native.applies import DTYPES
from .native.library import Library, choose
from .runner import kernels_of

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
FILES, INDEX = "*.safetensors", "model.safetensors.index.json"


@final
class TablesRunner(Runner):
    """directory holds the target's safetensors; config is of its text part. The tables are held in dtype."""

    def __init__(self, directory: Path, config: Any, dtype: torch.dtype, device: torch.device) -> None:
        self._directory = directory
        self._tied = bool(config.tie_word_embeddings)
        self.num_layers, self.vocab_size = int(config.num_hidden_layers), int(config.vocab_size)
        self.width = int(config.hidden_size)
        self.max_length = None
        self.device, self.dtype = device, dtype
        self.name = directory.name
        self.native = _native(dtype, device)

    @cached_property
    def tables(self) -> tuple[Table, Linear]:
        """Embeddings and head. Raises UnsupportedModel where the files hold none, InvalidModelFile on unreadable ones."""
        names = [EMBEDDING] if self._tied else [EMBEDDING, HEAD]
        found = _tensors(self._directory, names)
        if missing := [name for name in names if name not in found]:
            raise UnsupportedModel(
                f"{self._directory} holds no {missing[0]} in safetensors, which a compact draft shares with its target; "
                "export the draft with forerun export draft, and name the directory"
            )
        kernels = kernels_of(self.native)
        held = [found[name].to(self.device, self.dtype) for name in names]
        table = make_table(held[0], "", kernels)
        return table, table.as_head() if self._tied else make_head(held[1], "", kernels)

    def new_store(self, capacity: int) -> NoReturn:
        self._refuse()

    def execute(self, requests: Sequence[Request]) -> list[Rows]:
        self._refuse()

    def add_weights(self, name: str) -> None:
        self._refuse()

    def add_head(self, tokens: Sequence[int]) -> str:
        self._refuse()

    def embed(self, ids: Tensor) -> Tensor:
        return self.tables[0].embed(ids)

    def head(self, hidden: Tensor, name: str = "") -> Tensor:
        return self.tables[1](hidden).float()

    def check_plan(self, plan: LayerPlan) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedModel(f"{self.name} runs in another engine; only its tables are here")


def identity_in(directory: Path, config: Any, vocabulary: Mapping[str, int] | None) -> Identity:
    """As identity_of says it of the model in these files, of which few bytes are read.

    Raises InvalidModelFile on files that can't be read. Where their names aren't transformers' own, weights differ.
    """
    tensors = _tensors(directory)
    if config.tie_word_embeddings:
        tensors.pop(HEAD, None)
    return Identity(
        family=str(config.model_type),
        num_layers=int(config.num_hidden_layers),
        hidden_size=int(config.hidden_size),
        vocab_size=int(config.vocab_size),
        weights=digest_of(tensors),
        vocabulary="" if vocabulary is None else digest_of_vocabulary(vocabulary),
    )


def _native(dtype: torch.dtype, device: torch.device) -> Library | str:
    if device.type != "cpu":
        return f"the native step runs on CPUs and the model is on {device.type}"
    return choose() if dtype in DTYPES else f"the native step holds floats in float32 and bfloat16, not in {dtype}"


def _tensors(directory: Path, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """Those of these names that are there, all if None; mapped, so that bytes are read when they are used."""
    found: dict[str, Tensor] = {}
    try:
        for file in _files(directory):
            with safe_open(file, "pt") as opened:
                there = opened.keys()
                found |= {name: opened.get_tensor(name) for name in there if names is None or name in names}
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InvalidModelFile(f"the weights in {directory} can't be read: {reason_of(error)}") from error
    return found


def _files(directory: Path) -> list[Path]:
    """The model's own, which an index names where there are several."""
    if (index := directory / INDEX).is_file():
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return [directory / name for name in sorted(set(named))]
    return sorted(directory.glob(FILES))

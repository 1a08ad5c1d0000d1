"""From a name, a path or a model object to a runner that has been checked, its tokenizer and its end-of-sequence ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args
from weakref import ref

import torch

from ...core.identity import Identity, digest_of_vocabulary, identity_of
from ...errors import UnsupportedModel, UnsupportedOption, reason_of
from ..files.locate import locate
from ..gguf.convert import converted
from ..gguf.shards import gguf_in
from ..lean.from_gguf import FAMILIES as GGUF_FAMILIES
from ..lean.from_gguf import lean_from_gguf
from ..lean.runner import LeanRunner
from ..lean.shape import lean_applies
from ..lean.weights import check_weights
from ..packed.runner import HFRunner, Runner
from .checkpoint import read_checkpoint
from .checks import check_structure
from .kept import Keeping, keeping_of
from .padding import ids_in
from .peft_adapter import base_of, has_adapter
from .self_check import check_logits, own_logits, self_check
from .tokenizer_files import read_tokenizer
from .wrappers import unwrapped

RunnerName = Literal["auto", "lean", "hf"]
DtypeName = Literal["float32", "bfloat16", "float16"]

RUNNERS: tuple[str, ...] = get_args(RunnerName)
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in get_args(DtypeName)}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready to run. tokenizer is None where there is none: ids go in, ids come out.

    generation_config gives the checkpoint's, as transformers reads it; a model object's as it is whenever that is asked.
    """

    runner: Runner
    tokenizer: Any | None
    eos: frozenset[int]
    name: str
    identity: Identity
    generation_config: Callable[[], Any]

    @property
    def vocabulary(self) -> dict[str, int] | None:
        """Token string -> id."""
        return _vocabulary(self.tokenizer)


@dataclass(frozen=True, slots=True)
class Module:
    """A model as transformers reads it. file is the GGUF file that it came from."""

    model: Any
    tokenizer: Any | None
    name: str
    file: Path | None

    @property
    def vocabulary(self) -> dict[str, int] | None:
        """Token string -> id."""
        return _vocabulary(self.tokenizer)

    @property
    def eos(self) -> frozenset[int]:
        """Every id that ends a text when this model decodes."""
        return _eos_of(self.model, self.tokenizer)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a model is, a directory or a GGUF file, and what it is called."""

    path: Path
    name: str


def open_module(
    model: str | Path,
    *,
    tokenizer: Any | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
) -> Module:
    """A transformers model by bundled name, directory, GGUF file or hub name, with its tokenizer where it has one.

    dtype is the checkpoint's own unless given (bfloat16 for GGUF), device the first of cuda, mps, cpu that is there.
    Raises ModelNotFound, InvalidModelFile, UnsupportedModel, UnsupportedOption.
    """
    place = device_of(device) or default_device()
    return _module(_site_of(model, trust_remote_code), tokenizer, dtype_of(dtype), place, trust_remote_code)


def _site_of(model: str | Path, trust_remote_code: bool) -> Site:
    path = located = locate(model, trust_remote_code)
    if path.is_dir() and not (path / "config.json").is_file():
        path = gguf_in(path) or path
    name = located.resolve().name.removesuffix(".gguf") if located == Path(model).expanduser() else str(model)
    return Site(path, name)


def _module(
    site: Site, tokenizer: Any | None, dtype: torch.dtype | None, device: torch.device, trust_remote_code: bool
) -> Module:
    """On the device "meta" it has no weights."""
    path = site.path
    directory = converted(path, dtype or torch.bfloat16) if path.is_file() else path
    opened = read_checkpoint(directory, dtype, trust_remote_code, without_weights=device.type == "meta")
    if device.type != "meta":
        opened = opened.to(device)
    if tokenizer is None:
        tokenizer = read_tokenizer(directory, trust_remote_code)
        if tokenizer is None and has_adapter(directory):
            tokenizer = read_tokenizer(base_of(directory), trust_remote_code)
    return Module(opened, tokenizer, site.name, path if path.is_file() else None)


def open_model(
    model: str | Path | Any,
    *,
    tokenizer: Any | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    weights: str = "",
    runner: str = "auto",
    trust_remote_code: bool = False,
) -> Loaded:
    """Open a model by bundled name, directory, GGUF file or hub name, or take a model object as it is.

    dtype is the checkpoint's own unless given (bfloat16 for GGUF), device the first of cuda, mps, cpu that is there.
    weights holds the matrices in a smaller form (weights.WEIGHTS). runner is one of RUNNERS: the lean decoder where it
    applies, always, or never; a model object always runs on its own modules. Weights that were packed for the native step
    are kept in a file, which the next process maps. Raises ModelNotFound, InvalidModelFile, UnsupportedModel,
    UnsupportedOption.
    """
    wanted, place = dtype_of(dtype), device_of(device)
    check_weights(weights)
    if runner not in RUNNERS:
        raise UnsupportedOption(f"unknown runner {runner!r}; known: {', '.join(RUNNERS)}")
    if not isinstance(model, str | Path):
        if weights or runner == "lean":
            raise UnsupportedOption(
                "a model object runs on its own modules and weights; load it by name or path instead"
            )
        bare = unwrapped(model)
        _check_as_it_is(bare, wanted, place)
        return _checked(bare, tokenizer, "")
    place = place or default_device()
    site = _site_of(model, trust_remote_code)

    def module(place: torch.device = place, tokenizer: Any | None = tokenizer) -> Module:
        return _module(site, tokenizer, wanted, place, trust_remote_code)

    if runner == "hf":
        return _anew(module, weights, runner)
    keeping = keeping_of(site.path, weights, wanted, place, trust_remote_code)
    if isinstance(keeping, str):
        loaded = _anew(module, weights, runner)
        if isinstance(loaded.runner, LeanRunner):
            loaded.runner.weights_reason = keeping
        return loaded
    if (found := _from_kept(keeping, module)) is not None:
        return found
    with keeping.turn() as reason:
        if reason is None and (found := _from_kept(keeping, module)) is not None:
            return found
        loaded = _anew(module, weights, runner)
        if not isinstance(loaded.runner, LeanRunner):
            return loaded
        loaded.runner.weights_reason = reason or ""
        return loaded if reason else replace(loaded, runner=keeping.keep(loaded.runner, loaded.identity))


def _from_kept(keeping: Keeping, module: Callable[..., Module]) -> Loaded | None:
    """The model on weights that an earlier process packed; what it checked then is not checked again."""
    contents = keeping.place.read()
    if contents is None:
        return None
    bare = module(torch.device("meta"))
    found = keeping.opened(contents, bare.model.config.get_text_config(), bare.name)
    if found is None:
        return None
    runner, identity = found
    vocabulary = bare.vocabulary
    identity = replace(identity, vocabulary="" if vocabulary is None else digest_of_vocabulary(vocabulary))
    return Loaded(runner, bare.tokenizer, bare.eos, bare.name, identity, _generation_config_of(bare.model))


def _anew(module: Callable[..., Module], weights: str, runner: str) -> Loaded:
    """The model from its own files."""
    opened = module()
    config = opened.model.config.get_text_config()
    reason = "runner 'hf' was asked for" if runner == "hf" else lean_applies(config)
    if reason is None and (weights or runner == "lean"):
        return _lean(opened, weights)
    if reason is None:
        if (loaded := _lean_if_possible(opened)) is not None:
            return loaded
        # the lean decoder has emptied it
        opened = module(tokenizer=opened.tokenizer)
    if weights or runner == "lean":
        raise UnsupportedOption(f"{opened.name} can't run on the lean decoder, which small weights need: {reason}")
    return _checked(opened.model, opened.tokenizer, opened.name)


def dtype_of(name: str | torch.dtype | None) -> torch.dtype | None:
    """The torch dtype of a name; raises UnsupportedOption on any but the known ones."""
    dtype = DTYPES.get(name) if isinstance(name, str) else name
    if name is not None and dtype not in DTYPES.values():
        raise UnsupportedOption(f"unknown dtype {name}; known: {', '.join(DTYPES)}")
    return dtype


def device_of(name: str | torch.device | None) -> torch.device | None:
    """The torch device of a name; raises UnsupportedOption where torch has none such here."""
    if name is None:
        return None
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UnsupportedOption(f"no device {name} here: {reason_of(error)}") from error
    return device


def default_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _check_as_it_is(model: Any, dtype: torch.dtype | None, device: torch.device | None) -> None:
    """A model object is the user's: it is not moved or cast."""
    check_structure(model)
    if dtype not in (None, model.dtype):
        raise UnsupportedOption(
            f"dtype {dtype} was asked for and the model object holds {model.dtype}; leave dtype out, or cast the model first"
        )
    if device is not None and (device.type != model.device.type or device.index not in (None, model.device.index)):
        raise UnsupportedOption(
            f"device {device} was asked for and the model object is on {model.device}; leave device out, or move it first"
        )


def _checked(model: Any, tokenizer: Any | None, name: str) -> Loaded:
    check_structure(model)
    runner = HFRunner(model, name)
    self_check(runner, model)
    return Loaded(
        runner,
        tokenizer,
        _eos_of(model, tokenizer),
        runner.name,
        identity_of(model, _vocabulary(tokenizer)),
        _generation_config_of(model),
    )


def _lean(module: Module, weights: str) -> Loaded:
    """The model on the lean decoder, which empties it; what small weights change is not an error of the decoder.

    4-bit weights come straight from a GGUF file that may hold such, not from the floats that were made of it.
    """
    model, tokenizer, name, file = module.model, module.tokenizer, module.name, module.file
    check_structure(model)
    eos, identity = _eos_of(model, tokenizer), identity_of(model, module.vocabulary)
    generation_config = _generation_config_of(model)
    straight = weights == "int4" and model.device.type == "cpu" and model.config.model_type in GGUF_FAMILIES
    if file is not None and straight:
        for parameter in model.parameters():
            # the floats would stand beside the codes
            parameter.data = parameter.data.new_empty(0)
        lean = lean_from_gguf(file, model.config, weights, name)
        return Loaded(lean, tokenizer, eos, name, identity, generation_config)
    expected = None if weights else own_logits(model)
    runner = LeanRunner.from_model(model, weights, name)
    if expected is not None:
        check_logits(runner, expected, type(model).__name__)
    return Loaded(runner, tokenizer, eos, name, identity, generation_config)


def _generation_config_of(model: Any) -> Callable[[], Any]:
    """The model's generation config as it is then; the model is not kept alive for it."""
    reference, first = ref(model), model.generation_config

    def current() -> Any:
        owner = reference()
        return first if owner is None else owner.generation_config

    return current


def _lean_if_possible(module: Module) -> Loaded | None:
    try:
        return _lean(module, "")
    except UnsupportedModel:
        # whether it stands in the way of transformers' own modules, too, their own check tells
        return None


def _vocabulary(tokenizer: Any | None) -> dict[str, int] | None:
    return None if tokenizer is None else dict(tokenizer.get_vocab())


def _eos_of(model: Any, tokenizer: Any | None) -> frozenset[int]:
    """Every id that ends a text, by the generation config, the config or the tokenizer."""
    holders = (model.generation_config, model.config.get_text_config(), tokenizer)
    return frozenset(token for one in holders for token in ids_in(getattr(one, "eos_token_id", None)))

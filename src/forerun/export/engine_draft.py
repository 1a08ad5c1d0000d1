"""Writes a trained draft for other engines, checks it as they do, and tells how each is started with it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from ..errors import UnsupportedOption
from ..models.files.locate import locate
from ..models.files.quiet import quiet
from ..models.files.saved import published
from ..models.gguf.convert import converted
from ..models.loading.load import dtype_of
from .engine_checks import check_directory, check_gguf, check_tokenizer_file
from .gguf_draft import check_family, write_gguf
from .standalone import Standalone, standalone

SUFFIX = ".gguf"
LENGTH = 3


@dataclass(frozen=True, slots=True)
class EngineDraft:
    """said: tokens that it drafts among, of the vocabulary. checks: what holds. launch: engine -> how it is started."""

    path: Path
    said: int
    vocabulary: int
    parameters: int
    bytes: int
    checks: tuple[str, ...]
    launch: dict[str, str]


def export_for_engines(
    model: str | Path,
    draft: str | Path,
    output: Path,
    *,
    vocabulary: int | None = None,
    dtype: str | None = None,
    weights: str | None = None,
    gguf_target: Path | None = None,
) -> EngineDraft:
    """Write a directory in dtype (bfloat16 if None), or a GGUF file where output ends so, in these weights (f16 if None).

    gguf_target: the GGUF file that llama.cpp runs the model from, where the model isn't one. Raises ValueError where output
    is there already or can't be written, UnsupportedOption where an engine would refuse the draft, what standalone raises.
    """
    if output.exists() or output.is_symlink():
        raise ValueError(f"{output} is there already; name one that isn't")
    whole = output.suffix == SUFFIX
    if whole and dtype is not None:
        raise UnsupportedOption("dtype is of a directory; a GGUF file holds weights")
    if not whole and (weights is not None or gguf_target is not None):
        raise UnsupportedOption("weights and the target's GGUF file are of a GGUF draft; name the output NAME.gguf")
    tokenizer = _target_file(model, gguf_target) if whole else None
    made = standalone(model, draft, vocabulary, dtype)
    if tokenizer is not None:
        checks = _write_file(made, tokenizer, weights or "f16", output)
        launch = _llama(tokenizer, output)
    else:
        checks = _write_directory(made, dtype or "bfloat16", output)
        launch = _others(_directory_of(model, dtype or "bfloat16"), output)
    files = [output] if output.is_file() else [file for file in output.iterdir() if file.is_file()]
    parameters = sum(one.numel() for one in made.model.parameters())
    size = sum(file.stat().st_size for file in files)
    return EngineDraft(output, made.said, made.vocabulary, parameters, size, tuple(checks), launch)


def _target_file(model: str | Path, given: Path | None) -> Path:
    path = Path(given) if given is not None else locate(model).resolve()
    if not path.is_file():
        raise UnsupportedOption(
            f"a GGUF draft takes its tokenizer from the GGUF file that llama.cpp runs the target from, and {path} is none; "
            "name that file with --gguf-target"
        )
    return path


def _write_directory(made: Standalone, dtype: str, output: Path) -> list[str]:
    with published(output, str(output)) as partial, quiet():
        wanted = dtype_of(dtype)
        made.model.to(wanted).save_pretrained(partial)
        if made.target.tokenizer is not None:
            made.target.tokenizer.save_pretrained(partial)
        return check_directory(partial, made.target)


def _write_file(made: Standalone, tokenizer: Path, weights: str, output: Path) -> list[str]:
    check_family(made.model.config, weights)
    check_tokenizer_file(tokenizer, made.target)
    partial = output.with_name(f".partial-{output.name}")
    try:
        write_gguf(made.model, made.name, tokenizer, weights, partial)
        checks = check_gguf(partial, tokenizer)
        partial.rename(output)
    except OSError as error:
        raise ValueError(f"can't write {output}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return checks


def _directory_of(model: str | Path, dtype: str) -> Path:
    """Where engines that read directories find the target."""
    path = locate(model).resolve()
    wanted = dtype_of(dtype)
    assert wanted is not None
    return converted(path, wanted) if path.is_file() else path


def _others(target: Path, draft: Path) -> dict[str, str]:
    told = {"method": "draft_model", "model": str(draft.resolve()), "num_speculative_tokens": LENGTH}
    return {
        "vllm": shlex.join(["vllm", "serve", str(target), "--speculative-config", json.dumps(told)]),
        "transformers": (
            f"AutoModelForCausalLM.from_pretrained({str(target)!r}).generate(**inputs, "
            f"assistant_model=AutoModelForCausalLM.from_pretrained({str(draft.resolve())!r}))"
        ),
    }


def _llama(target: Path, draft: Path) -> dict[str, str]:
    given = ["--model", str(target), "--spec-type", "draft-simple", "--spec-draft-model", str(draft.resolve())]
    return {"llama.cpp": shlex.join(["llama-server", *given, "--spec-draft-n-max", str(LENGTH)])}

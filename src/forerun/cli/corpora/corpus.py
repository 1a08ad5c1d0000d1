"""forerun corpus: texts of your own to draft from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..shared_options import AsJson, Model
from ..terminal import note, progress, show, show_json

MEGABYTE = 1_000_000

corpus = typer.Typer(name="corpus", help="Make texts of your own ready to be drafted from.", no_args_is_help=True)


@corpus.callback()
def _group() -> None:
    """Keeps the command's name in use while there is but one."""


@corpus.command("build")
def build(
    model: Model,
    files: Annotated[
        list[Path], typer.Argument(help="Text files, or .jsonl with text, messages or turns.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The new directory to write to.", show_default=False)],
    trust_remote_code: Annotated[bool, typer.Option(help="Run Python code that comes with the model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tokenize texts and sort their places, for --drafter corpus --path DIR; memory stays bounded."""
    from ...core.identity import digest_of_vocabulary
    from ...drafters.corpora.files import build_corpus
    from ...models.loading.load import open_module

    sizes = [_size(file) for file in files]
    note(f"reading the tokenizer of {model}")
    opened = open_module(model, device="meta", trust_remote_code=trust_remote_code)
    if opened.tokenizer is None or opened.vocabulary is None:
        raise ValueError(f"{model} has no tokenizer, which a corpus needs")
    identity = digest_of_vocabulary(opened.vocabulary), int(opened.model.config.get_text_config().vocab_size)
    with progress("megabytes", sum(sizes) // MEGABYTE + 1) as tick:
        about = build_corpus(_encoded(opened.tokenizer, files, tick), output, identity)
    held = sum(file.stat().st_size for file in output.iterdir())
    if as_json:
        show_json({"directory": str(output), "tokens": about.tokens, "bytes": held})
        return
    show(
        f"{output}: {about.tokens} tokens, {held / MEGABYTE:.1f} MB; draft from it with: --drafter corpus --path {output}"
    )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise ValueError(f"can't read the corpus file {file}: {error}") from error


def _encoded(tokenizer: Any, files: Sequence[Path], tick: Callable[[], None]) -> Iterator[list[int]]:
    """The tokens of each text, about a megabyte of texts at once; tick is called for each megabyte."""
    from ...drafters.corpora.texts import texts_of

    encode = _encoder(tokenizer)
    waiting: list[str] = []
    size = 0
    for text in (text for file in files for text in texts_of(file)):
        waiting.append(text)
        size += len(text.encode(errors="surrogatepass"))
        if size >= MEGABYTE:
            yield from encode(waiting)
            for _ in range(size // MEGABYTE):
                tick()
            waiting, size = [], size % MEGABYTE
    if waiting:
        yield from encode(waiting)


def _encoder(tokenizer: Any) -> Callable[[list[str]], list[list[int]]]:
    """Encodes texts whole, without special tokens."""
    if not tokenizer.is_fast:
        return lambda texts: list(tokenizer(texts, add_special_tokens=False, verbose=False).input_ids)
    fast = tokenizer.backend_tokenizer
    fast.no_truncation()
    fast.no_padding()
    # without the offsets that a tokenizer's call makes: they leave memory in pieces that the system doesn't get back
    return lambda texts: [one.ids for one in fast.encode_batch_fast(texts, add_special_tokens=False)]

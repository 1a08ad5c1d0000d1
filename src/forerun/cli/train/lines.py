"""The lines of data that training commands read: --skip-bad, and what is said of lines that were left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...jsonl import Skipped
from ...train.data.turns import turn_end
from ...train.processes import launched
from ..terminal import note

if TYPE_CHECKING:
    from ...train.data.examples import Example

HELP = "Leave out bad lines, and report how many and what was wrong with the first."
SkipBad = Annotated[bool, typer.Option("--skip-bad", help=HELP)]


def counting(skip_bad: bool) -> Skipped | None:
    """Where lines at fault are counted; None where the first one is to end the command."""
    return Skipped() if skip_bad else None


def read_data(
    files: Sequence[Path], tokenizer: Any | None, eos: Collection[int], skipped: Skipped | None, **limits: Any
) -> list[Example]:
    """The examples of some files; limits as read_examples takes them. Tells what was skipped, and ends that don't end."""
    from ...engine.prompts.questions import has_chat_template
    from ...train.data.examples import read_examples

    examples = [one for file in files for one in read_examples(file, tokenizer, eos=eos, skipped=skipped, **limits)]
    tell_skipped(skipped)
    end = turn_end(tokenizer, eos) if launched().main and has_chat_template(tokenizer) else None
    if tokenizer is not None and end is not None and end not in eos and any(one.ids[-1] == end for one in examples):
        note(
            f"the chat template ends a turn with {tokenizer.convert_ids_to_tokens(end)!r} ({end}), where decoding doesn't "
            "stop; name it in eos_token_id of the model's generation_config.json"
        )
    return examples


def tell_skipped(skipped: Skipped | None) -> None:
    if skipped is not None and skipped.count and launched().main:
        note(f"lines skipped: {skipped.count}; the first: {skipped.first}")


def skipped_as_dict(skipped: Skipped | None) -> dict[str, Any]:
    """For a command's JSON object; nothing without --skip-bad."""
    return {} if skipped is None else {"skipped": {"lines": skipped.count, "first": skipped.first or None}}

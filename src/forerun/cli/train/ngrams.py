"""forerun train ngrams: count what a model writes after which tokens, as a table to draft from."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...models.packed.limits import max_length_of
from ..flags import flag, takes
from ..output import check_folder
from ..shared_options import OPENING, AsJson, Model
from ..terminal import note, show, show_json
from . import distil
from .lines import HELP as SKIPPING
from .lines import counting, read_data, skipped_as_dict

RUN = (
    flag("longest", int, 4, "Options", "The tokens of the longest context, 1 to 8."),
    flag(
        "held_out", float, 0.1, "Options", "The share of answers on which followers are judged before all are counted."
    ),
    flag("skip_bad", bool, False, "Options", SKIPPING),
)


@takes(*RUN, *OPENING)
def ngrams(model: Model, data: distil.Data, output: distil.Output, as_json: AsJson = False, **given: Any) -> None:
    """Count which token follows which in the model's own answers: a table that suffix and auto ask, in seconds."""
    from ...core.identity import identity_of
    from ...models.files.ngrams import KIND, write_ngrams
    from ...models.loading.load import open_module
    from ...train.ngrams.table import build_table

    if output.exists():
        raise ValueError(f"{output} exists already; give another output, or remove it")
    check_folder(output.parent)
    note(f"loading {model}")
    module = open_module(model, dtype="bfloat16", device="cpu", trust_remote_code=given["trust_remote_code"])
    config = module.model.config.get_text_config()
    skipped = counting(given["skip_bad"])
    limits = {"max_length": max_length_of(config), "vocab_size": config.vocab_size}
    examples = read_data(data, module.tokenizer, module.eos, skipped, **limits)
    identity = identity_of(module.model, module.vocabulary)
    table, judged = build_table(examples, identity, given["longest"], given["held_out"], Path(model).name)
    write_ngrams(table, output)
    size = (output / KIND.weights_file).stat().st_size
    if as_json:
        told = {"directory": str(output), "bytes": size, "contexts": len(table.keys)}
        show_json({**told, **asdict(judged), **skipped_as_dict(skipped)})
        return
    show(f"{output}: {len(table.keys)} contexts of up to {table.longest} tokens, {size / 1e6:.1f} MB")
    show(
        f"of {judged.tokens} held-out tokens the table says {judged.right:.2f}; it is sure of {judged.sure:.2f}, and right "
        f"in {judged.right_of_sure:.2f} of these"
    )
    show(f"Draft with it: --drafter suffix --ngrams {output}")

"""Whether a draft model speaks its target's tokens, by the files that transformers and vLLM read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import UnsupportedOption


def check_vocabularies(target: str, draft: str) -> None:
    """Raises UnsupportedOption where sizes or tokens differ. Models that aren't on this machine are left to the engine."""
    sizes = [_of_config(model).get("vocab_size") for model in (target, draft)]
    if None not in sizes and sizes[0] != sizes[1]:
        raise UnsupportedOption(
            f"the draft model {draft} has a vocabulary of {sizes[1]} tokens and {target} one of {sizes[0]}; a draft model "
            "must be of its target's family"
        )
    tokens = [_tokens(model) for model in (target, draft)]
    if tokens[0] and tokens[1]:
        other = sum(tokens[1].get(token, number) != number for token, number in tokens[0].items())
        if other or tokens[0].keys() != tokens[1].keys():
            raise UnsupportedOption(
                f"the draft model {draft} has another vocabulary than {target}: its tokens have other numbers; a draft "
                "model must be of its target's family"
            )


def _of_config(model: str) -> dict[str, Any]:
    told = _json(Path(model) / "config.json")
    text = told.get("text_config")
    return text if isinstance(text, dict) else told


def _tokens(model: str) -> dict[str, int]:
    """Without those that were added later, which models of one family may lack."""
    found = _json(Path(model) / "tokenizer.json").get("model", {}).get("vocab", {})
    return found if isinstance(found, dict) else {}


def _json(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}

"""The options of a request, as callers, the command line and the documents read them."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

import forerun
from forerun.engine import request
from forerun.engine.options import Options, given_options
from forerun.engine.prompts import prompt
from forerun.engine.request import RequestOptions, option_help, option_hints

PYTHON_PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def own(ids: Tensor, scores: Tensor) -> Tensor:
    return scores


# values of each type that an annotation allows
ALLOWED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("max_new_tokens", "top_k", "no_repeat_ngram", "seed"), (3,)),
    **dict.fromkeys(("temperature", "top_p", "min_p"), (1, 0.5)),
    **dict.fromkeys(("repetition_penalty", "frequency_penalty", "presence_penalty"), (1, 0.5)),
    **dict.fromkeys(
        ("do_sample", "ignore_eos", "processed_logprobs", "speculate", "json_object", "remember", "generation_config"),
        (True, False),
    ),
    "processors": (own, forerun.row_wise(own), [own], (own, own), iter([own])),
    "prediction": ("text", [1, 2], (1, 2), iter([1])),
    "json_schema": ({"type": "object"}, '{"type": "object"}', "true"),
    "regex": ("a+",),
    "choice": (["a", "b"], ("a",), iter(["a"])),
    "grammar": ('start: "a"',),
    "stop": ("x", ["x", "y"], ("x",), {"x"}),
    "stop_token_ids": (3, [3, 4], (3,), {3}, torch.tensor([3]), np.array([3])),
    "logprobs": (2, True, False),
}


def test_the_documented_options_are_those_that_are_checked_in_their_order() -> None:
    assert list(option_hints()) == [field.name for field in fields(Options)]
    assert RequestOptions.__required_keys__ == frozenset()


@pytest.mark.parametrize("option", list(option_hints()))
def test_each_option_is_told_in_a_sentence_of_its_own(option: str) -> None:
    told = option_help()[option]

    assert re.fullmatch(r"[A-Z0-9].*\.", told)
    assert list(option_help().values()).count(told) == 1
    assert "|" not in told


@pytest.mark.parametrize("option", list(option_hints()))
def test_what_a_type_allows_is_accepted(option: str) -> None:
    for value in ALLOWED[option]:
        given_options({option: value})


@pytest.mark.parametrize("option", list(option_hints()))
def test_each_option_may_be_left_open(option: str) -> None:
    assert NoneType in get_args(option_hints()[option].__origin__)
    assert given_options({option: None}) == {}


@pytest.mark.parametrize("module", [request, prompt], ids=["request", "prompt"])
def test_the_types_are_read_without_anything_heavy(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]

    assert not any(isinstance(node, ast.Import) for node in tree.body)
    assert {name.split(".")[0] for name in imported} <= {*sys.stdlib_module_names}


def test_the_python_page_names_exactly_these_options() -> None:
    text = PYTHON_PAGE.read_text(encoding="utf-8")
    listed = re.search(r"^Options: (.*?)\n\n", text, flags=re.MULTILINE | re.DOTALL)
    assert listed is not None

    assert re.findall(r"`([a-z_]+)`", listed[1]) == list(option_hints())

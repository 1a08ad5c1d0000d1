"""What the demo says of figures, in favour or not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.bench.difference import Difference
from forerun.cli.demo.measured import Contender, Kind, Written
from forerun.cli.demo.told import COLUMNS, rows, sentence, texts


def comparison(ratio: float, rate: float = 100.0, difference: Difference | None = None) -> Any:
    ratios = [ratio, ratio * 1.01, ratio * 1.02]
    return SimpleNamespace(
        plain=SimpleNamespace(rates=[rate] * 3),
        speculative=SimpleNamespace(
            rates=[rate * one for one in ratios], stats=SimpleNamespace(tokens_per_round=max(2.0, ratio))
        ),
        ratios=ratios,
        speedup=ratios[1],
        difference=difference,
        identical=difference is None,
        verdict="equal" if difference is None else "rounding",
        match_rate=0.5,
        rounding_margin=1.0,
    )


def kind(first: Any, second: Any, parted: tuple[int, int, float] | None = None) -> Kind:
    engine: Any = None
    compared = (
        (Contender("the default (lookup)", "int4", engine), first),
        (Contender("its own int4 copy", "bfloat16", engine), second),
    )
    return Kind("open", "open questions", compared, Written(((1, 2),), 20, 2.0, parted))


def test_each_method_stands_beside_plain_decoding_of_its_own_weights() -> None:
    told = rows(kind(comparison(1.2, 400), comparison(1.5, 50)))
    assert [len(row) for row in told] == [len(COLUMNS)] * 5
    assert [row[:3] for row in told] == [
        ("plain decoding", "int4", "400.0"),
        ("the default (lookup)", "int4", "484.8"),
        ("plain decoding", "bfloat16", "50.0"),
        ("its own int4 copy", "bfloat16", "75.8"),
        ("transformers' generate", "bfloat16", "10.0"),
    ]
    assert told[-1][3:] == ("0.20", "1", "the plain one")


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(1.5, "helped (1.52 times as fast)"), (0.8, "cost time (0.81"), (1.0, "made no clear difference")],
)
def test_a_sentence_says_whether_it_helped(ratio: float, said: str) -> None:
    told = sentence(kind(comparison(1.2, 400), comparison(ratio, 50)))
    assert told.startswith(
        "On open questions: the default (lookup) helped (1.21 times as fast) in int4; its own int4 copy "
    )
    assert said in told
    assert "Times as fast as transformers' generate in bfloat16: the default (lookup) in int4 48.5, its own" in told


@pytest.mark.parametrize("rate", [0.0, 10.0])
def test_a_figure_that_only_a_busy_machine_explains_is_not_compared(rate: float) -> None:
    busy = replace(
        kind(comparison(1.2, 400), comparison(1.5, 400)), transformers=Written(((1,),), int(rate), 1.0, None)
    )
    assert f"transformers' generate can't be told: it wrote {rate:.2g} tokens/s" in sentence(busy)
    assert "Times as fast" not in sentence(busy)


def test_equal_texts_are_said_to_be_equal() -> None:
    (said,) = texts([kind(comparison(1.2), comparison(1.5))])
    assert said == "Every text with speculation is the plain text of the same weights, token for token."


def test_of_texts_that_part_the_margin_is_said() -> None:
    differing = comparison(1.5, difference=Difference(0, 0, 4, 7, 8, 0.02))
    said = list(texts([kind(comparison(1.2), differing, (1, 2, 0.005))]))
    assert said[0].startswith(
        "its own int4 copy in bfloat16 on open questions: Outputs: 50.0% equal; first different at"
    )
    assert "preferred its token there by 0.02" in said[0]
    assert "at answer 2, token 3, where that one preferred its token by 0.005" in said[1]

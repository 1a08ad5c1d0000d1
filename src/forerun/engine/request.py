"""The options of a request, each with its type and what it does: what callers, the command line and the documents read.

Nothing heavy is imported here. options.py checks what is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypedDict, get_type_hints

if TYPE_CHECKING:
    from torch import FloatTensor, LongTensor, Tensor


class LogitsProcessor(Protocol):
    """What transformers' logits processors are: from token ids [1, n] and scores [1, V] to scores [1, V]."""

    def __call__(self, ids: LongTensor, scores: FloatTensor, /) -> Tensor: ...


class RequestOptions(TypedDict, total=False):
    """How a prompt is to be answered. What is left out, or None, is as the checkpoint's generation config says.

    Where that says nothing, decoding is greedy, up to 128 tokens.
    """

    max_new_tokens: Annotated[int | None, "Write at most this many tokens."]
    temperature: Annotated[float | None, "0 takes the most probable token; above, tokens are drawn."]
    top_k: Annotated[int | None, "Draw from the k most probable tokens (0: all)."]
    top_p: Annotated[float | None, "Draw from the most probable tokens that hold this share (1: all)."]
    min_p: Annotated[float | None, "Leave out tokens below this share of the best one's probability (0: none)."]
    do_sample: Annotated[bool | None, "Draw tokens, at the checkpoint's temperature and filters where none are given."]
    repetition_penalty: Annotated[float | None, "Divide the score of tokens that occur already (1: off)."]
    frequency_penalty: Annotated[float | None, "Lower a token's score for each time it was written (0: off)."]
    presence_penalty: Annotated[float | None, "Lower a token's score if it was written (0: off)."]
    no_repeat_ngram: Annotated[int | None, "Write no n-gram of this size twice (0: off)."]
    processors: Annotated[
        LogitsProcessor | Iterable[LogitsProcessor] | None,
        "Logits processors as transformers has them, one or several; with one that may keep state nothing is drafted.",
    ]
    seed: Annotated[
        int | None, "The same seed gives the same text; if none is given, torch's global generator draws one."
    ]
    stop: Annotated[str | Iterable[str] | None, "End the text before this string; several may be given."]
    stop_token_ids: Annotated[
        int | Iterable[int] | None, "End the text after one of these tokens, as after an end of sequence."
    ]
    ignore_eos: Annotated[bool | None, "Go on after the end of sequence."]
    logprobs: Annotated[
        int | None, "Report each token's log-probability and those of this many alternatives (True: of none)."
    ]
    processed_logprobs: Annotated[
        bool | None, "Report log-probabilities after penalties and filters, not the raw ones."
    ]
    speculate: Annotated[bool | None, "Draft and verify; otherwise decode plainly."]
    prediction: Annotated[
        str | Iterable[int] | None, "The answer that you expect, as a text or token ids: it is drafted from first."
    ]
    json_schema: Annotated[Mapping[str, Any] | str | None, "Write JSON that fits this schema, a mapping or JSON text."]
    json_object: Annotated[bool | None, "Write a JSON object."]
    regex: Annotated[str | None, "Write a text that this regular expression matches as a whole."]
    choice: Annotated[Iterable[str] | None, "Write one of these texts."]
    grammar: Annotated[str | None, "Write a text of this grammar, in Lark's form as llguidance has it."]
    remember: Annotated[
        bool | None, "Let drafters that copy text keep the answer, to draft later answers of this engine from."
    ]
    generation_config: Annotated[
        bool | None, "Do what the checkpoint's generation config asks for where the request says nothing."
    ]


def option_hints() -> dict[str, Any]:
    """The annotation of each option, in the order in which they are documented."""
    return get_type_hints(RequestOptions, include_extras=True)


def option_help() -> dict[str, str]:
    """What each option does, in a sentence."""
    return {name: hint.__metadata__[0] for name, hint in option_hints().items()}

"""transformers' knobs: prompt lookup and an assistant model, as `generate` takes them. It answers one prompt at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, final

from ...errors import UnsupportedOption
from .draft_vocabulary import check_vocabularies
from .knobs import Knobs, Wanted
from .programs import version_said
from .serving_engine import Launch, ServingEngine

LOOKUP, ASSISTANT = METHODS = ("lookup", "draft-model")
OLDEST = 5
SIZES = ((3, 2), (5, 3), (10, 2), (10, 3), (2, 2))  # tokens that are drafted, the longest n-gram
LENGTHS, SURE = (3, 5, 8, 2), (0.4, 0.0, 0.7)


@final
class Transformers(ServingEngine):
    name = "transformers"
    form = "hf"
    program = "python"
    methods = METHODS
    most_open = 3

    def version(self, program: str) -> str:
        said = version_said(
            [program, "-c", "import importlib.metadata as m; print(m.version('transformers'))"], self.name
        )
        if int(said.split(".")[0]) < OLDEST:
            raise UnsupportedOption(
                f"{program} has transformers {said}, and forerun tunes it from {OLDEST} on; update it"
            )
        return said

    def check(self, launch: Launch, wanted: Wanted) -> None:
        if launch.at_once > 1:
            raise UnsupportedOption(
                f"transformers drafts for one prompt at a time, got --concurrency up to {launch.at_once}; leave it at 1"
            )
        if launch.more:
            raise UnsupportedOption(f"transformers is no program that takes --engine-args, got {' '.join(launch.more)}")
        for draft in wanted.draft_models:
            check_vocabularies(launch.model, draft)

    def first(self, wanted: Wanted) -> list[Knobs]:
        methods = wanted.of(METHODS, self.name)
        found = [_lookup(*SIZES[0])] if LOOKUP in methods else []
        return [
            *found,
            *(_assistant(model, LENGTHS[0], SURE[0]) for model in wanted.draft_models if ASSISTANT in methods),
        ]

    def near(self, knobs: Knobs) -> list[Knobs]:
        if knobs.method == LOOKUP:
            found = [_lookup(*sizes) for sizes in SIZES]
        else:
            own = knobs.settings["assistant_generation"]
            model, sure = knobs.settings["assistant"], own["assistant_confidence_threshold"]
            found = [_assistant(model, length, sure) for length in LENGTHS]
            found += [_assistant(model, own["num_assistant_tokens"], other) for other in SURE]
        return [one for place, one in enumerate(found) if one != knobs and one not in found[:place]]

    def command(self, launch: Launch, knobs: Knobs) -> list[str]:
        """A program that answers a prompt given as its argument."""

        def loaded(model: str) -> str:
            return f"AutoModelForCausalLM.from_pretrained({model!r}, dtype={launch.dtype or 'auto'!r})"

        lines = [
            "import sys",
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            f"tokenizer, model = AutoTokenizer.from_pretrained({launch.model!r}), {loaded(launch.model)}",
            f"options = {dict(knobs.settings.get('generate', {}))!r}",
        ]
        if "assistant" in knobs.settings:
            lines += [
                f"options['assistant_model'] = {loaded(knobs.settings['assistant'])}",
                f"for name, value in {dict(knobs.settings['assistant_generation'])!r}.items():",
                "    setattr(options['assistant_model'].generation_config, name, value)",
            ]
        lines += [
            "ids = tokenizer(sys.argv[1], return_tensors='pt')",
            "print(tokenizer.decode(model.generate(**ids, do_sample=False, max_new_tokens=256, **options)[0]))",
        ]
        return [launch.program, "-c", "\n".join(lines)]

    def place(self, port: int) -> Sequence[str]:
        return ()

    def settings(self, knobs: Knobs) -> Mapping[str, Any]:
        """What the benchmark's worker is told."""
        told: dict[str, Any] = json.loads(json.dumps(dict(knobs.settings)))
        return told


def _lookup(length: int, size: int) -> Knobs:
    options = {"prompt_lookup_num_tokens": length, "max_matching_ngram_size": size}
    return Knobs(LOOKUP, f"lookup {size} to {length} tokens", 1, {"generate": options})


def _assistant(model: str, length: int, sure: float) -> Knobs:
    """transformers' own schedule changes the length as it goes; a constant one is what was measured here."""
    own = {
        "num_assistant_tokens": length,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": sure,
    }
    return Knobs(
        ASSISTANT,
        f"draft model {model}, {length} tokens of {sure:g}",
        2,
        {"assistant": model, "assistant_generation": own},
    )

"""A benchmark from start to end: open the backends, measure, report, and close the peers whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

from ..engine.engine import Engine
from ..engine.prompts.questions import has_chat_template
from ..engine.request import RequestOptions
from ..engine.system.value import System
from ..errors import UnsupportedOption
from .backend import Backend
from .interleaving import measure_interleaved
from .load.measuring import REPEATS, measure_loads
from .load.rows import rows_of
from .margins import as_dict, differences
from .methods import backend_of
from .peer import PeerChoice, PeerSettings, open_peer
from .report import report_of
from .suite import Item, turns_of

# room after the longest answer, where speculating peers put drafts that are thrown away
CONTEXT_SLACK = 64


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is measured. settings: how the peers run, all but context and eos, which follow from the prompts and the model.

    raw passes texts on without a chat template. generation_config: whether the checkpoint's is applied, by forerun and
    transformers; other peers never read it. all_turns: not only the first turn of each item is asked. at_once: numbers of
    prompts in flight, beside one prompt after the other; (1,) for no more than that."""

    engine: Engine
    methods: Sequence[System]
    items: Sequence[Item]
    peers: Sequence[PeerChoice]
    settings: PeerSettings
    max_new_tokens: int = 128
    raw: bool = False
    generation_config: bool = True
    all_turns: bool = False
    at_once: Sequence[int] = (1,)

    @property
    def count(self) -> int:
        """The number of prompts."""
        return sum(len(item.question.turns) if self.all_turns else 1 for item in self.items)

    @property
    def loaded(self) -> bool:
        """Whether prompts are also answered several at once."""
        return max(self.at_once) > 1

    @property
    def ticks(self) -> int:
        return self.count + (REPEATS * len(self.at_once) if self.loaded else 0)

    def asked(self) -> tuple[list[Item], list[list[int]]]:
        """What is asked, and the token ids of its prompts, the same for every backend: a turn each."""
        chat = not self.raw and has_chat_template(self.engine.tokenizer)
        if self.engine.tokenizer is None:
            raise UnsupportedOption("a benchmark needs a tokenizer to read its suite; load the model with one")
        if self.all_turns:
            between: RequestOptions = {
                "max_new_tokens": self.max_new_tokens,
                "seed": 0,
                "generation_config": self.generation_config,
            }
            return turns_of(self.engine, self.items, between, chat)
        first_turns = [replace(item.question, turns=item.question.turns[:1]) for item in self.items]
        return list(self.items), [question.ids((), chat, self.engine.tokenizer) for question in first_turns]

    def run(
        self, tick: Callable[[], None] = lambda: None, opening: Callable[[str], None] = lambda name: None
    ) -> dict[str, Any]:
        """The report. opening is called with a name before each backend is opened, tick as often as ticks says."""
        if max(self.at_once) > self.count:
            raise ValueError(
                f"{max(self.at_once)} prompts can't be in flight where there are {self.count}; take more prompts, "
                "or fewer at once"
            )
        items, prompts = self.asked()
        longest = max(map(len, prompts)) + self.max_new_tokens
        limit = self.engine.runner.max_length
        if limit is not None and longest > limit:
            raise ValueError(
                f"the longest prompt and its answer take {longest} tokens and {self.engine.name} holds {limit}; use fewer "
                "max-new-tokens or another suite"
            )
        failures: dict[str, str] = {}
        with ExitStack() as stack:
            backends: list[Backend] = []
            for method in self.methods:
                opening(method.name)
                backends.append(backend_of(method, self.engine, self.generation_config))
            settings = replace(
                self.settings,
                context=longest + CONTEXT_SLACK,
                eos=tuple(sorted(self.engine.eos)),
                generation_config=self.generation_config,
                at_once=max(self.at_once),
            )
            for choice in self.peers:
                opening(choice.label)
                for peer in open_peer(choice, settings, failures):
                    backends.append(stack.enter_context(closing(peer)))
            measurements = measure_interleaved(backends, prompts, self.max_new_tokens, tick)
            measurements = replace(measurements, failures={**failures, **measurements.failures})
            ids = [item.id for item in items]
            found = differences(self.engine, measurements, backends, prompts, self.max_new_tokens)
            parted = {name: as_dict(self.engine, own, ids) for name, own in found.items()}
            report = report_of(measurements, backends, items, prompts, parted)
            if self.loaded:
                taking_part = [one for one in backends if one.name in measurements.samples]
                loads = measure_loads(taking_part, prompts, self.at_once, self.max_new_tokens, tick)
                report |= {"loads": rows_of(loads, backends), "not_loaded": loads.failures}
            return report

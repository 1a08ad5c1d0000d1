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
    transformers; other peers never read it. all_turns: not only the first turn of each item is asked."""

    engine: Engine
    methods: Sequence[System]
    items: Sequence[Item]
    peers: Sequence[PeerChoice]
    settings: PeerSettings
    max_new_tokens: int = 128
    raw: bool = False
    generation_config: bool = True
    all_turns: bool = False

    @property
    def count(self) -> int:
        """The number of prompts."""
        return sum(len(item.question.turns) if self.all_turns else 1 for item in self.items)

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
        """The report. opening is called with a name before each backend is opened, tick once a prompt."""
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
            return report_of(measurements, backends, items, prompts, parted)

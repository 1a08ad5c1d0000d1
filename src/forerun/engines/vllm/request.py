"""One request as the proposer follows it: its text, its drafter and its policy, and what became of its last draft."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, TypeVar, final

import torch

from ...core.chance import Seeded
from ...core.decode import collect
from ...core.drafter import Drafter
from ...core.drive import Cancelled
from ...core.forward import Rows
from ...core.policy import LengthPolicy
from ...core.values import Context, Draft, Round, Step, Timing, Verdict
from ...errors import UnsupportedOption

T = TypeVar("T")
NONE_SHOWN = torch.empty(0, 0)  # vLLM shows no rows of the target


@final
class Request:
    """ids is its text when it was first seen, the last `new` tokens of which vLLM wrote."""

    def __init__(
        self, drafter: Drafter, policy: LengthPolicy, ids: list[int], new: int, max_length: int, eos: frozenset[int]
    ) -> None:
        self._drafter, self._policy = drafter, policy
        self.context = Context(ids, Seeded(0), max_length=max_length, eos=eos)
        self.context.prompt_length = len(ids) - new
        self.number = 0  # in the order in which they came
        self.absent = 0  # calls in which vLLM didn't show it
        self._steps: list[Step] = []
        self._asked = self._held_back = False
        self.plain = False  # whether it is decoded without drafts to its end
        policy.begin(drafter.unread(ids), max_length - len(ids), drafter.copies)

    @property
    def drafted(self) -> int:
        """Tokens of the last draft."""
        return len(self._steps)

    @property
    def steps(self) -> Sequence[Step]:
        """The last draft."""
        return self._steps

    @property
    def ended(self) -> bool:
        """Whether the last tokens hold an end of sequence, where most requests end."""
        return self.context.ids[-1] in self.context.eos

    def draft(self, longest: int) -> list[int]:
        """The tokens to verify next, up to `longest`, from a drafter that runs no model."""
        if self._begins(longest):
            self._steps, _ = _run(collect(self._drafter, self._policy, self.context))
        return self._tokens

    async def drafting(self, longest: int) -> AsyncGenerator[list[int]]:
        """The same for a driver, which runs the forwards that the drafter asks for."""
        if self._begins(longest):
            self._steps, _ = await collect(self._drafter, self._policy, self.context)
        yield self._tokens

    def _begins(self, longest: int) -> bool:
        """Whether the policy wants a draft."""
        context = self.context
        # a round emits that many at most
        context.max_new_tokens = len(context.ids) - context.prompt_length + longest + 1
        self._asked, self._held_back, self._steps = True, self._policy.should_stop([]), []
        return not self._held_back

    @property
    def _tokens(self) -> list[int]:
        return [step.tokens[0] for step in self._steps]

    def hold_back(self) -> None:
        """Nobody drafts this time, which says nothing about this request."""
        self._steps, self._asked = [], False

    def let_go(self) -> None:
        """Nothing is drafted for it any more, and what its drafter keeps is free."""
        if not self.plain:
            self.hold_back()
            self._drafter.close()
            self.plain = True

    def extend(self, new: Sequence[int], timing: Timing) -> None:
        """vLLM wrote these tokens after the last draft. timing without seconds: of a round that nobody could time."""
        start = len(self.context.ids)
        self.context.ids.extend(new)
        if not self._asked:
            return
        accepted = 0
        while accepted < min(len(new) - 1, len(self._steps)) and self._steps[accepted].tokens[0] == new[accepted]:
            accepted += 1
        steps = self._steps
        if accepted < len(steps) and steps[accepted].tokens[0] == new[accepted]:
            steps = steps[:accepted]  # vLLM verified no more of them
        round = Round(
            tokens=tuple(new),
            draft=Draft.of(steps),
            verdict=Verdict(tuple(range(accepted)), tuple(new[: accepted + 1])),
            start=start,
            timing=timing,
            held_back=self._held_back,
        )
        self._drafter.learn(self.context, round, Rows(NONE_SHOWN, NONE_SHOWN))
        self._policy.observe(steps, round)

    def skip(self, ids: Sequence[int]) -> None:
        """Calls were missed in which vLLM wrote these tokens: what became of the last draft isn't known."""
        self.context.ids.extend(ids)
        self.hold_back()

    def end(self) -> None:
        self._policy.end()
        if not self.plain:
            self._drafter.close()


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that needs no forward."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    try:
        coroutine.throw(Cancelled())  # not close: what is awaited inside can't be closed while it runs
    except Cancelled:
        pass
    raise UnsupportedOption("the drafter asked for a forward of a model, which it can't have inside vLLM")

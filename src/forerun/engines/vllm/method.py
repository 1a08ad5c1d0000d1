"""Builds drafters and policies for vLLM: those that need nothing of the target but its text, and are told of its load.

Drafters that copy text are built from nothing. A draft model and a corpus need the tokenizer, and what else files tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast, final

from ...core.drafter import Drafter
from ...core.policy import LengthPolicy
from ...drafters.base import DrafterFactory, Parts
from ...drafters.registry import DRAFTERS
from ...engine.system.value import System
from ...errors import UnsupportedOption
from ...policies.base import PolicyFactory
from ...policies.cost import with_costs
from ...policies.registry import POLICIES
from .costs import LoadCosts
from .governing import LoadGovernor
from .settings import MOST_MEMORY, Served

if TYPE_CHECKING:
    from .served import Opened

COPYING = ("lookup", "suffix")
FROM_FILES = ("corpus", "draft_model")
MODEL = "draft_model"
READS = {f"{MODEL}_reads": 128, "reads": 128}  # of a prompt a draft model reads the end: other requests wait meanwhile
# what the wrapping drafters name theirs by
WRAPPED = {"cascade": "of", "hybrid": "then"}
REASONS = {
    "prediction": "vLLM hands a request's prediction to no proposer; put the expected text into the prompt, where "
    "lookup and suffix find it",
    "auto": "name the drafters yourself, as in cascade of suffix,draft_model",
}
GIB = 2**30


@final
@dataclass(frozen=True, slots=True)
class Method:
    """governor: None where nothing switches drafting off for all requests at once.

    most_held: tokens whose keys and values a draft model may keep, None where none runs; of a prompt it reads so many at its
    end, 0: all.
    """

    drafter: DrafterFactory
    policy: PolicyFactory
    costs: LoadCosts
    governor: LoadGovernor | None
    most_held: int | None = None
    reads: int = 0

    def make(self) -> tuple[Drafter, LengthPolicy]:
        """For a new request."""
        return self.drafter(cast(Any, None)), self.policy()  # drafters that copy text have no use for a sequence


def method_of(system: System, longest: int, served: Served | None = None, draft_memory: float = MOST_MEMORY) -> Method:
    """Raises UnsupportedOption on drafters that need more of the model than vLLM shows, and on policies trained for one.

    served: the model that vLLM runs, for drafters that need its files; draft_memory: GiB.
    """
    costs = LoadCosts()
    name, options = system.policy, dict(system.policy_options)
    governor = None
    if name == "governor":
        name, options, governor = _governed(options)
    policy = _policy(name, options, costs, longest)
    named = _named(system.drafter, system.drafter_options)
    if not {*named} & {*FROM_FILES}:
        return Method(_built(system, {}, _no_parts()), policy, costs, governor)
    reads = _reads(named, system.drafter_options)
    opened = _opened(served, named)
    drafter = _built(system, reads, opened.parts)
    if MODEL not in named:
        return Method(drafter, policy, costs, governor)
    most = int(draft_memory * GIB) // opened.bytes_a_token
    return Method(drafter, policy, costs, governor, most, next(iter(reads.values())))


def _named(name: str, options: Mapping[str, Any]) -> list[str]:
    """The drafters that will run."""
    wrapped = str(options.get(WRAPPED[name], "")).split(",") if name in WRAPPED else [name]
    named = [part.strip() for part in wrapped]
    known = (*COPYING, *FROM_FILES)
    for one in named:
        if one not in known:
            DRAFTERS.entry(one)
            reason = REASONS.get(one, "it needs states or forwards of the model, which vLLM shows to no proposer")
            raise UnsupportedOption(f"drafter {one!r} can't run inside vLLM: {reason}; known there: {', '.join(known)}")
    return named


def _reads(named: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The option that says how much of a prompt the draft model reads, with its default inside vLLM."""
    if MODEL not in named:
        return {}
    name = next((one for one in READS if one in options), "reads")
    return {name: options.get(name, READS[name])}


def _built(system: System, more: Mapping[str, Any], parts: Parts) -> DrafterFactory:
    options = {**system.drafter_options, **more}
    factory: DrafterFactory = DRAFTERS.check(system.drafter, options).build(parts, **options)
    return factory


def _opened(served: Served | None, named: Sequence[str]) -> Opened:
    if served is None:
        raise UnsupportedOption(f"{', '.join(named)} needs the files of vLLM's model, which aren't known here")
    try:
        from .served import Opened
    except ModuleNotFoundError as error:
        raise UnsupportedOption(
            f"drafters {', '.join(FROM_FILES)} need the package {error.name}, which vLLM's Python lacks; there: "
            f"pip install {error.name}"
        ) from error
    return Opened(served)


def _governed(options: dict[str, Any]) -> tuple[str, dict[str, Any], LoadGovernor]:
    """The policy that the governor holds, its options, and the governor of all requests."""
    entry = POLICIES.check("governor", options)
    own = {
        name: options.pop(name, parameter.default)
        for name, parameter in entry.options.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    if not own["carry"]:
        raise UnsupportedOption("carry of the policy 'governor' must be true inside vLLM, where requests share rounds")
    # checks credit and loss, and that inner is another policy
    entry.build(**own, **options)
    return own["inner"], options, LoadGovernor(own["credit"], own["loss"])


def _policy(name: str, options: dict[str, Any], costs: LoadCosts, longest: int) -> PolicyFactory:
    if name == "fixed":
        options = {"k": longest, **options}
    entry = POLICIES.check(name, options)
    make: PolicyFactory = entry.build(**options)
    if name == "cost" and options.get("draft_ratio") is None:
        known = {option: options[option] for option in ("optimism", "retry", "carry") if option in options}
        make = with_costs(lambda: costs, max_steps=min(options.get("max_steps", longest), longest), **known)
    if make().trained_for is not None:
        raise UnsupportedOption(
            f"policy {name!r} can't run inside vLLM: it was trained on states that vLLM doesn't show"
        )
    return make


def _no_parts() -> Parts:
    """Drafters that copy text are built without any."""

    def no_model(model: Any) -> NoReturn:
        raise UnsupportedOption(f"no drafter can open {model} inside vLLM")

    return Parts(cast(Any, None), cast(Any, None), None, no_model)

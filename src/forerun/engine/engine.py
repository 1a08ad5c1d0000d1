"""The engine: a model, a drafter and a policy; prompts in, text out."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, final, overload

import torch
from torch import nn

from ..core.chance import Seeded
from ..core.decode import decode
from ..core.drafter import Drafter
from ..core.identity import Identity, Pair
from ..core.processors import PROMISE, ClassifiedProcessors
from ..core.values import Context, Round
from ..drafters.base import DrafterFactory, Parts, drafting_pool
from ..drafters.cascade import Cascade
from ..drafters.none import NoDraft
from ..drafters.prediction import Prediction
from ..errors import UnsupportedOption
from ..models.lean.weights import WeightsName
from ..models.loading.follow import check_text_is_not_random, follow
from ..models.loading.given_tokenizer import TokenizerSource, as_tokenizer
from ..models.loading.load import DtypeName, Loaded, RunnerName, open_model
from ..models.loading.padding import Padding, padding_of
from ..models.packed.plan import FULL, ActivationBits, LayerPlan, check_activations
from ..models.packed.pool import SequencePool
from ..models.packed.runner import HFRunner, Runner
from ..models.packed.sequence import Sequence as Target
from ..policies.base import PolicyFactory
from ..policies.fixed import Fixed
from .answer import Answer, Piece, Result
from .explanation import Explained, Explaining
from .generation_config.defaults import CheckpointDefaults, read_defaults
from .generation_config.processors import ProcessorContext
from .generation_config.sampling import with_checkpoint
from .grammar.compiled import Grammars
from .in_flight import InFlight, Job
from .kept import kept_for
from .methods import drafter_factory, name_of, policy_factory, policy_for
from .option_values import whole_number
from .options import Options, applied_options, given_options, options_from
from .prompts.forms import encode, is_many, split
from .prompts.prediction import predicted_tokens
from .prompts.prompt import Prompt, Prompts, SinglePrompt, TokenRows
from .request import RequestOptions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_BATCH = 16


@final
class Engine:
    """Answers prompts through the speculative loop. Make one with forerun.load."""

    def __init__(
        self,
        loaded: Loaded,
        parts: Parts,
        pools: Sequence[SequencePool],
        drafter: DrafterFactory,
        policy: PolicyFactory,
        drafter_name: str = "",
        grammars: Grammars | None = None,
    ) -> None:
        self.tokenizer: PreTrainedTokenizerBase | None = loaded.tokenizer
        self.runner = loaded.runner
        self.eos = loaded.eos
        self.name = loaded.name
        self.identity = loaded.identity
        self.drafter = drafter
        self._loaded = loaded
        self._parts = parts
        self._pools = pools
        self._policy = policy
        self._drafter_name = drafter_name
        self._grammars = grammars or Grammars(loaded.tokenizer, loaded.runner.vocab_size)
        self._learned, self.choice = kept_for(self, drafter, policy)
        self._check_pair()

    # a text is a sequence of texts to a type checker
    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompt: SinglePrompt, *, max_batch: int | None = MAX_BATCH, **options: Unpack[RequestOptions]
    ) -> Result: ...

    @overload
    def generate(
        self, prompt: Prompts, *, max_batch: int | None = MAX_BATCH, **options: Unpack[RequestOptions]
    ) -> list[Result]: ...

    @overload
    def generate(
        self, prompt: TokenRows, *, max_batch: int | None = MAX_BATCH, **options: Unpack[RequestOptions]
    ) -> Result | list[Result]: ...

    def generate(
        self, prompt: Prompt | Prompts, *, max_batch: int | None = MAX_BATCH, **options: Unpack[RequestOptions]
    ) -> Result | list[Result]:
        """Answer a prompt (text, messages or token ids) with a Result, or a list of prompts with a list of Results.

        A batch of ids [B, n], or what a tokenizer gives for several texts, is such a list; its padding is left out.
        options are those of RequestOptions; one that is left out, or None, is as the checkpoint's generation config says,
        else the default. Up to max_batch prompts share each forward, and each accepts its own number of tokens. Raises
        ValueError before anything runs if a prompt or an option is no good.
        """
        many = is_many(prompt)
        prompts: list[Any] = split(prompt, self._padding()) if many else [prompt]
        results = dict(self.each(((one, options) for one in prompts), max_batch=max_batch))
        ordered = [results[index] for index in range(len(prompts))]
        return ordered if many else ordered[0]

    def each(
        self, requests: Iterable[tuple[Prompt, RequestOptions]], *, max_batch: int | None = MAX_BATCH
    ) -> Iterator[tuple[int, Result]]:
        """Answer prompts, each with its own options: (number of the request, Result) in the order in which they end.

        Up to max_batch of them share each forward. Everything is checked before anything runs; raises what generate
        raises. Closing the iterator ends the requests.
        """
        size = MAX_BATCH if max_batch is None else whole_number("max_batch", max_batch)
        if size < 1:
            raise ValueError(f"max_batch must be at least 1, got {size}")
        jobs = [self.prepare(prompt, options) for prompt, options in requests]
        return ((index, piece.result) for index, piece in self._run(jobs, size) if piece.result is not None)

    def stream(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> Iterator[Piece]:
        """Answer one prompt piece by piece; the last piece carries the Result. Closing the iterator ends the request."""
        many = is_many(prompt)
        prompts = split(prompt, self._padding()) if many else [prompt]
        if len(prompts) > 1 or (many and isinstance(prompt, Sequence)):
            raise UnsupportedOption("stream takes one prompt; use generate for several at once")
        jobs = [self.prepare(prompts[0], options)]
        return (piece for _, piece in self._run(jobs, 1))

    def using(
        self,
        drafter: str | DrafterFactory,
        policy: str | PolicyFactory | None = None,
        *,
        drafter_options: Mapping[str, object] | None = None,
        policy_options: Mapping[str, object] | None = None,
    ) -> Engine:
        """An engine on the same model, loaded once, with another method. Raises what load raises."""
        make_policy = policy_factory(policy_for(drafter, policy), policy_options)
        make_drafter = drafter_factory(drafter, drafter_options, self._parts)
        return Engine(
            self._loaded, self._parts, self._pools, make_drafter, make_policy, name_of(drafter), self._grammars
        )

    async def rounds(
        self, context: Context, speculate: bool = True, told: list[Explained] | None = None
    ) -> AsyncGenerator[Round]:
        """decode on a sequence of the pool, which is released whatever happens. For a driver (drive.py).

        told: where to explain the rounds, if they are to be.
        """
        with self.borrow(context.ids, speculate) as (sequence, drafter):
            if context.prediction and speculate:
                drafter = Cascade((Prediction(), drafter), ("prediction", self._drafter_name), None)
            # plain requests teach the policy nothing
            policy = self._policy() if speculate else Fixed(1)
            if told is not None:
                policy = Explaining(policy, drafter, self._drafter_name, told)
            async with aclosing(decode(sequence, drafter, policy, context, speculate)) as rounds:
                async for round in rounds:
                    yield round

    @contextmanager
    def borrow(self, ids: Sequence[int], speculate: bool = True) -> Iterator[tuple[Target, Drafter]]:
        """A sequence of the pool for a text that begins so, and a drafter on it; both are released whatever happens."""
        sequence = self._parts.target.acquire(ids)
        drafter = self.drafter(sequence) if speculate else NoDraft()
        try:
            yield sequence, drafter
        finally:
            drafter.close()
            self._parts.target.release(sequence)
            if self._learned is not None:
                self._learned.request_ended()

    @property
    def pair(self) -> Pair:
        """The target and the drafter, as what is trained for both of them knows them."""
        with self.borrow(()) as (_, drafter):
            return Pair(self.identity, drafter.identity)

    @property
    def lossy(self) -> bool:
        """Whether the drafter verifies by a rule of its own, so that sampled text doesn't follow the model's law."""
        with self.borrow(()) as (_, drafter):
            return drafter.rule is not None

    def forget(self) -> None:
        """Drop the keys and values kept for later turns, so that the next prompt is computed from its first token."""
        for pool in self._pools:
            pool.clear()

    def follow(self) -> None:
        """Bring model objects that changed since they were loaded up to date; generate, each and stream do so by themselves.

        Keys and values of weights that were written in place are dropped. Of a write through `.data` that changes a few
        numbers only, forget is to be told. Raises UnsupportedModel where a changed model can't be run exactly.
        """
        keeps = not all(pool.empty for pool in self._pools)
        for runner in self.runners:
            follow(runner, thoroughly=keeps)
        check_text_is_not_random(self.runner)

    @property
    def outdated(self) -> bool:
        """Whether a model object is another than the one that was loaded, apart from the values of its parameters."""
        return any(isinstance(runner, HFRunner) and runner.watch.changed() for runner in self.runners)

    @property
    def runners(self) -> list[Runner]:
        """The target's, then those of drafters that were opened for it."""
        return list(dict.fromkeys(pool.runner for pool in self._pools))

    def _padding(self) -> Padding:
        """What pads a batch of ids now: the generation config and the tokenizer are the user's, and change."""
        return padding_of(self._loaded.generation_config(), self.tokenizer)

    def _check_pair(self) -> None:
        trained_for = self._policy().trained_for
        if trained_for is not None:
            trained_for.check(self.pair, "policy")

    @property
    def checkpoint_defaults(self) -> CheckpointDefaults:
        """What the checkpoint's generation config asks of requests that leave it open. Raises what read_defaults raises."""
        return read_defaults(self._loaded.generation_config())

    def prepare(self, prompt: Prompt, given: RequestOptions, shown: Sequence[str] = ()) -> Job:
        """A checked request for InFlight, nothing of which has run. Raises ValueError if prompt or options are no good.

        shown: special tokens that the text is to hold, such as what a model writes before a tool call.
        """
        asked = given_options(given)
        ids = self.prompt_ids(prompt)
        defaults = self.checkpoint_defaults if asked.get("generation_config", True) else CheckpointDefaults()
        options = options_from(asked, defaults.options_after(len(ids)), defaults.options_if_drawn)
        if options.stop_strings() and self.tokenizer is None:
            raise UnsupportedOption("stop strings need a tokenizer; load the model with one, or pass stop=()")
        if not options.max_new_tokens and "max_new_tokens" not in asked:
            raise ValueError(
                f"the prompt has {len(ids)} tokens and the checkpoint's generation config ends texts at "
                f"max_length={defaults.max_length}; give max_new_tokens"
            )
        own = options.classified()
        context, fields = self._context(ids, options, own, defaults, asked)
        applied = applied_options(options, defaults, asked, fields)
        told: list[Explained] | None = [] if options.explain else None
        form = options.stop_strings(), options.logprob_options()
        answer = Answer(context, self.tokenizer, *form, applied, self.choice, told, shown)
        if (doubt := options.doubt(own)) is not None:
            warnings.warn(f"nothing is drafted: {doubt}; {PROMISE}", stacklevel=4)
        speculates = options.speculate and doubt is None
        rounds = partial(self.rounds, context, speculates, told)
        return Job(context, answer, rounds, alone=doubt is not None, speculates=speculates)

    def _run(self, jobs: list[Job], max_batch: int) -> Iterator[tuple[int, Piece]]:
        waiting, alone = deque(range(len(jobs))), False
        flight: InFlight[int] = InFlight()
        try:
            while True:
                added: list[int] = []
                while waiting and len(flight) + len(added) < max_batch:
                    if (len(flight) or added) and (alone or jobs[waiting[0]].alone):
                        break
                    added.append(waiting.popleft())
                    alone = jobs[added[-1]].alone
                if added:
                    self.follow()
                for index in added:
                    flight.add(index, jobs[index])
                if not len(flight):
                    return
                for progress in flight.step():
                    if progress.error is not None:
                        raise progress.error
                    for piece in progress.pieces:
                        yield progress.key, piece
        finally:
            flight.close()

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The token ids of one prompt. Raises ValueError on what is no prompt, or a token that the model doesn't have."""
        ids = encode(prompt, self.tokenizer, self._padding())
        for token in ids:
            if not 0 <= token < self.runner.vocab_size:
                raise ValueError(f"token ids must be in 0..{self.runner.vocab_size - 1}, got {token}")
        return ids

    def _context(
        self,
        ids: list[int],
        options: Options,
        own: ClassifiedProcessors,
        defaults: CheckpointDefaults,
        given: Mapping[str, Any],
    ) -> tuple[Context, list[str]]:
        """The request, and the fields of the checkpoint's generation config that its processors are made of."""
        seed = int(torch.randint(2**63 - 1, ())) if options.seed is None else options.seed
        stop_tokens = options.stop_tokens(self.runner.vocab_size)
        limit = min(len(ids) + options.max_new_tokens, self.runner.max_length or sys.maxsize)
        ends = self.eos | defaults.ends
        place = ProcessorContext(ids, limit, ends | stop_tokens, self.runner.vocab_size, self.runner.device)
        sampling, fields = with_checkpoint(options.sampling(own), defaults, place, given)
        context = Context(
            ids=ids,
            chance=Seeded(seed),
            sampling=sampling,
            max_new_tokens=options.max_new_tokens,
            max_length=self.runner.max_length,
            eos=stop_tokens if options.ignore_eos else stop_tokens | ends,
            keep_logits=options.logprobs is not None,
            remember=options.remember,
            prediction=predicted_tokens(options.prediction, self.tokenizer, self.runner.vocab_size),
            constraint=self._grammars.constraint(options.grammar_source(), () if options.ignore_eos else ends),
        )
        return context, fields


def load(
    model: str | Path | nn.Module,
    tokenizer: TokenizerSource | None = None,
    drafter: str | DrafterFactory = "none",
    policy: str | PolicyFactory | None = None,
    *,
    drafter_options: Mapping[str, object] | None = None,
    policy_options: Mapping[str, object] | None = None,
    dtype: DtypeName | torch.dtype | None = None,
    device: str | torch.device | None = None,
    weights: WeightsName = "",
    runner: RunnerName = "auto",
    activations: ActivationBits | None = None,
    trust_remote_code: bool = False,
) -> Engine:
    """An engine for a model: "smollm2", a directory, a GGUF file, a hub name, or a loaded transformers model.

    tokenizer is loaded, a path or a name, or a bare tokenizers.Tokenizer; by default the model's own, if it has a name.
    drafter and policy are registered names with their options, or factories of your own; the policy is "governor" with the
    drafter "auto", else "fixed", unless given. weights holds the matrices in a
    smaller form: bf16, int8, int4. runner "auto" takes the lean decoder where it applies, "lean" insists on it, "hf" runs
    transformers' own modules. activations: 8 or 16 bits for the rows that native products take; 16 where they run, unless
    given. A model object is left as it is, on its own modules. Raises a ForerunError, or ValueError,
    that says what is wrong before anything is generated.
    """
    pools: list[SequencePool] = []
    place: dict[str, Any] = {"dtype": dtype, "device": device, "trust_remote_code": trust_remote_code}
    form: dict[str, Any] = {"weights": weights, "runner": runner}
    if activations is not None:
        check_activations(activations)

    kept: dict[
        str, tuple[SequencePool, dict[str, int] | None]
    ] = {}  # draft models by name: methods to compare share one

    def opened(other: Any) -> tuple[SequencePool, dict[str, int] | None]:
        named = isinstance(other, str | Path)
        if named and str(other) in kept:
            return kept[str(other)]
        draft = open_model(other, **{**place, **(form if named else {})})
        if named and activations is not None:
            draft.runner.use_activations(activations)
        found = open_pool(draft.runner, draft.identity), draft.vocabulary
        if named:
            kept[str(other)] = found
        return found

    def open_pool(runner: Runner, identity: Identity | None = None, plan: LayerPlan = FULL) -> SequencePool:
        pools.append(drafting_pool(runner, identity, plan))
        return pools[-1]

    make_policy = policy_factory(policy_for(drafter, policy), policy_options)
    given = as_tokenizer(tokenizer, trust_remote_code)
    loaded = open_model(model, tokenizer=given, **form, **place)
    if activations is not None:
        loaded.runner.use_activations(activations)
    pools.append(SequencePool(loaded.runner))
    parts = Parts(pools[0], loaded.identity, loaded.vocabulary, opened, _encoder(loaded.tokenizer), open_pool)
    make_drafter = drafter_factory(drafter, drafter_options, parts)
    return Engine(loaded, parts, pools, make_drafter, make_policy, name_of(drafter))


def _encoder(tokenizer: Any | None) -> Callable[[str], list[int]] | None:
    return None if tokenizer is None else lambda text: list(tokenizer(text, add_special_tokens=False).input_ids)

"""forerun inside transformers: model.generate(..., custom_generate=forerun.custom_generate(...)).

generate does what it always does up to its decoding loop, and hands over to this hook instead. What comes back is what its
own greedy search or sampling would give; sampled text follows the same law, from a seed of torch's global generator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, final
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import GenerateDecoderOnlyOutput

from ..core.chance import Seeded
from ..core.drive import Batch
from ..core.values import Context, Round
from ..drafters.base import DRAFTERS, DrafterFactory
from ..engine.engine import Engine, load
from ..engine.methods import policy_factory, policy_for
from ..errors import UnsupportedModel, UnsupportedOption
from ..models.loading.follow import check_text_is_not_random
from ..models.loading.given_tokenizer import TokenizerLike
from ..policies.base import PolicyFactory
from .call import Call, of_generate, read_call
from .signature import HookSignature
from .texts import Texts

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.generation.streamers import BaseStreamer


def custom_generate(
    drafter: str | DrafterFactory = "lookup",
    policy: str | PolicyFactory | None = None,
    drafter_options: Mapping[str, object] | None = None,
    policy_options: Mapping[str, object] | None = None,
    tokenizer: TokenizerLike | None = None,
) -> Hook:
    """What to pass to a transformers model's generate as custom_generate.

    One hook keeps what it built for the model that it saw last, as long as that model lives. tokenizer is the model's, for
    drafters and stop strings, where generate isn't given one. Raises UnsupportedOption on an unknown method or option, and
    when it is called for what it can't do exactly; warns where generate's own loop has to write for it, without drafts.
    """
    if isinstance(drafter, str):
        DRAFTERS.check(drafter, drafter_options or {})
    make_policy = policy_factory(policy_for(drafter, policy), policy_options)
    return Hook(
        partial(load, tokenizer=tokenizer, drafter=drafter, policy=make_policy, drafter_options=drafter_options),
        tokenizer,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """The engine built for one model, as it was then."""

    model: ReferenceType[PreTrainedModel]
    engine: Engine


@final
class Hook:
    """The callable that generate hands over to. Make one with custom_generate."""

    __signature__ = HookSignature()

    def __init__(self, build: Callable[[PreTrainedModel], Engine], tokenizer: TokenizerLike | None = None) -> None:
        self.tokenizer = tokenizer
        self._build = build
        self._bound: _Bound | None = None
        self._lock = RLock()

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        streamer: BaseStreamer | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        **inputs: Any,
    ) -> Tensor | GenerateDecoderOnlyOutput:
        """What generate asks of a decoding loop. It has used the tokenizer already, where it needs one."""
        streamer = of_generate("streamer") if streamer is None else streamer
        _check_inputs(model)
        call = read_call(input_ids, logits_processor, stopping_criteria, generation_config, inputs, streamer)
        if call.doubt is not None:
            warnings.warn(
                f"custom_generate: generate's own loop writes this text, without drafts: {call.doubt}",
                stacklevel=6,  # past generate and its decorators
            )
            given = (input_ids, logits_processor, stopping_criteria, generation_config)
            return model._sample(*given, streamer=streamer, **inputs)
        texts = _write(call, self._engine(model))
        if streamer is not None:
            streamer.end()
        if not call.returns_dict:
            return texts.sequences()
        return GenerateDecoderOnlyOutput(
            sequences=texts.sequences(),
            scores=texts.scores() if call.keeps_scores else None,
            logits=texts.logits() if call.keeps_logits else None,
        )

    def _engine(self, model: PreTrainedModel) -> Engine:
        with self._lock:
            bound = self._bound
            if bound is None or bound.model() is not model or bound.engine.outdated:
                self._bound = bound = _Bound(ref(model, self._unbind), self._build(model))
            check_text_is_not_random(bound.engine.runner)
            return bound.engine

    def _unbind(self, model: ReferenceType[PreTrainedModel]) -> None:
        """A model died: let go of the parameters that the engine shares with it."""
        with self._lock:  # reentrant, since a model may die at any time, also while this thread builds an engine
            if self._bound is not None and self._bound.model is model:
                self._bound = None


def _check_inputs(model: PreTrainedModel) -> None:
    """Raise UnsupportedModel where another object prepares what the model reads: it may read more than its tokens."""
    prepare = model.prepare_inputs_for_generation
    if getattr(prepare, "__self__", None) is not model:
        owner = type(getattr(prepare, "__self__", prepare)).__name__
        raise UnsupportedModel(
            f"custom_generate: a {owner} prepares the inputs of this {type(model).__name__} (prompt tuning, prefix tuning "
            "and p-tuning put trained embeddings or keys before the text), and forerun runs token ids alone; generate "
            "without the hook"
        )


def _write(call: Call, engine: Engine) -> Texts:
    """Run all texts of the call, up to the last one's end."""
    texts = Texts(call)
    contexts = [_context(call, number, engine.runner.max_length) for number in range(len(call.lengths))]
    batch: Batch[int, Round] = Batch()
    try:
        for number, context in enumerate(contexts):
            batch.add(number, engine.rounds(context))
        for number, round in batch.values():
            texts.take(number, round)
            for done in texts.done():
                batch.cancel(done)
    finally:
        batch.close()
        engine.forget()  # the weights may be trained before the next call
    return texts


def _context(call: Call, number: int, max_length: int | None) -> Context:
    prompt = call.prompt(number)
    if max_length is not None and len(prompt) + call.max_new_tokens > max_length:
        raise UnsupportedOption(
            f"custom_generate: {len(prompt)} tokens of prompt and {call.max_new_tokens} new ones don't fit the model's "
            f"{max_length} positions; ask for at most {max(max_length - len(prompt), 0)} with max_new_tokens"
        )
    # torch's global generator is asked only where generate itself would ask it
    seed = int(torch.randint(2**63 - 1, ())) if call.samples else 0
    return Context(
        ids=prompt,
        chance=Seeded(seed),
        sampling=call.sampling(number),
        max_new_tokens=call.max_new_tokens,
        eos=call.eos,
        keep_logits=call.keeps_scores or call.keeps_logits,
    )

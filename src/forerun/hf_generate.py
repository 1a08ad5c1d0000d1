"""forerun inside transformers: model.generate(..., custom_generate=forerun.custom_generate(...)).

generate does what it always does up to its decoding loop, and hands over to this hook instead. What comes back is what its
own greedy search or sampling would give; sampled text follows the same law, from a seed of torch's global generator.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, final
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from transformers import GenerationConfig, StoppingCriteriaList
from transformers.generation import GenerateDecoderOnlyOutput

from .chance import Seeded
from .core import Context, Round
from .decode import decode
from .drafters.base import DRAFTERS, DrafterFactory, Parts
from .drive import Batch
from .errors import UnsupportedOption
from .hf_call import Call, of_generate, read_call
from .hf_texts import Texts
from .methods import drafter_factory, policy_factory
from .models.load import open_model
from .models.pool import Pool
from .policies.base import PolicyFactory


def custom_generate(
    drafter: str | DrafterFactory = "lookup",
    policy: str | PolicyFactory = "fixed",
    drafter_options: Mapping[str, Any] | None = None,
    policy_options: Mapping[str, Any] | None = None,
    tokenizer: Any | None = None,
) -> Hook:
    """What to pass to a transformers model's generate as custom_generate.

    One hook keeps what it built for the model that it saw last, as long as that model lives. tokenizer is the model's; a
    drafter that brings a model of its own compares vocabularies with it. Raises UnsupportedOption on an unknown method
    or option, and when it is called for what it can't do exactly.
    """
    if isinstance(drafter, str):
        DRAFTERS.check(drafter, drafter_options or {})
    return Hook(drafter, drafter_options, policy_factory(policy, policy_options), tokenizer)


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """What was built for one model: nothing of a text outlives its call, since the weights may be trained in between."""

    model: ReferenceType[Any]
    state: tuple[object, ...]
    pool: Pool
    drafter: DrafterFactory


@final
class Hook:
    """The callable that generate hands over to. Make one with custom_generate."""

    def __init__(
        self,
        drafter: str | DrafterFactory,
        drafter_options: Mapping[str, Any] | None,
        policy: PolicyFactory,
        tokenizer: Any | None,
    ) -> None:
        self._drafter = drafter
        self._drafter_options = drafter_options
        self._policy = policy
        self._tokenizer = tokenizer
        self._bound: _Bound | None = None

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        streamer: Any | None = None,
        **inputs: Any,
    ) -> Tensor | GenerateDecoderOnlyOutput:
        """What generate asks of a decoding loop."""
        streamer = of_generate("streamer") if streamer is None else streamer
        call = read_call(input_ids, logits_processor, stopping_criteria, generation_config, inputs, streamer)
        bound = self._bind(model)
        contexts = [_context(call, row, bound.pool.runner.max_length) for row in range(len(call.lengths))]
        texts = self._run(call, bound, contexts)
        if streamer is not None:
            streamer.end()
        if not call.returns_dict:
            return texts.sequences()
        return GenerateDecoderOnlyOutput(
            sequences=texts.sequences(),
            scores=texts.scores() if call.keeps_scores else None,
            logits=texts.logits() if call.keeps_logits else None,
        )

    def _run(self, call: Call, bound: _Bound, contexts: list[Context]) -> Texts:
        texts = Texts(call)
        batch: Batch[int, Round] = Batch()
        try:
            for number, context in enumerate(contexts):
                batch.add(number, self._rounds(bound, context))
            for event in batch.run():
                if event.error is not None:
                    raise event.error
                if event.value is not None:
                    texts.take(event.key, event.value)
                    for number in texts.done():
                        batch.cancel(number)
        finally:
            batch.close()
        return texts

    async def _rounds(self, bound: _Bound, context: Context) -> AsyncGenerator[Round]:
        sequence = bound.pool.take()
        drafter = bound.drafter(sequence)
        try:
            async with aclosing(decode(sequence, drafter, self._policy(), context)) as rounds:
                async for round in rounds:
                    yield round
        finally:
            drafter.close()

    def _bind(self, model: Any) -> _Bound:
        bound, state = self._bound, _state(model)
        if bound is not None and bound.model() is model and bound.state == state:
            return bound
        runner = open_model(model).runner

        def load(other: Any) -> tuple[Pool, dict[str, int] | None]:
            given = {"dtype": model.dtype, "device": model.device} if isinstance(other, str) else {}
            draft = open_model(other, **given)
            return Pool(draft.runner, drafting=True, keep=0), _vocabulary(draft.tokenizer)

        parts = Parts(Pool(runner, keep=0), _vocabulary(self._tokenizer), load)
        drafter = drafter_factory(self._drafter, self._drafter_options, parts)
        self._bound = _Bound(ref(model, self._unbind), state, parts.target, drafter)
        return self._bound

    def _unbind(self, model: ReferenceType[Any]) -> None:
        """A model died: let go of the parameters that the runner shares with it."""
        if self._bound is not None and self._bound.model is model:
            self._bound = None


def _state(model: Any) -> tuple[object, ...]:
    """What a runner is built from. Other parameters, another dtype or device need another runner; other values don't."""
    return model.dtype, model.device, *(id(parameter) for parameter in model.parameters())


def _vocabulary(tokenizer: Any | None) -> dict[str, int] | None:
    return None if tokenizer is None else dict(tokenizer.get_vocab())


def _context(call: Call, row: int, max_length: int | None) -> Context:
    prompt = call.prompt(row)
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
        sampling=call.sampling(row),
        max_new_tokens=call.max_new_tokens,
        eos=call.eos,
        keep_logits=call.keeps_scores or call.keeps_logits,
    )

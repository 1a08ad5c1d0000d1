"""From a row of logits to its law: the only place where temperature, filters and penalties are applied.

Order, as in transformers: processors that come before penalties; repetition, frequency and presence penalties, no-repeat
n-gram, the other processors; then what a constraint allows, whatever came before; then temperature, top-k, top-p, min-p,
warpers. At temperature 0 the law is a point mass on the best token left by the first groups, the lowest id among equals. A
history-dependent step sees the full prefix of its own row, drafted tokens included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidLogits
from .choice import Chooser
from .law import Categorical, Filtered, Law, PointMass
from .values import Processor, Sampling

# Among how many of the best tokens the edge of top-p is looked for before all are sorted.
NUCLEUS = 512
# Up to how many allowed tokens are looked at alone.
FEW = 1024


def law(
    logits: Tensor,
    sampling: Sampling,
    prefix: Sequence[int] = (),
    prompt_length: int = 0,
    chooser: Chooser | None = None,
    allowed: Tensor | None = None,
) -> Law:
    """The law of the token that follows prefix, from its row of logits [V].

    prefix is read only if sampling.uses_history, chooser only if not. allowed: which tokens may follow, bool [V] or longer.
    Raises InvalidLogits on NaN and on a row that allows no token.
    """
    if allowed is not None and not sampling.warpers and np.count_nonzero(allowed.numpy()) <= FEW:
        return _law_of_few(processed(logits, sampling, prefix, prompt_length), sampling, logits, allowed)
    scores = processed(logits, sampling, prefix, prompt_length, allowed)
    if chooser is not None and not sampling.uses_history:
        if sampling.temperature == 0:
            if (best := chooser.best(scores)) is not None:
                _check(best[0][0])
                return PointMass(best[1][0])
        elif not sampling.warpers and (own := chooser.filtered(scores, sampling)) is not None:
            return own
    return _law(scores, sampling, logits)


def ranked(
    logits: Tensor,
    sampling: Sampling,
    n: int,
    prefix: Sequence[int] = (),
    prompt_length: int = 0,
    allowed: Tensor | None = None,
) -> tuple[Law, list[tuple[int, float]]]:
    """The law of a row, and its n most probable tokens with their probabilities, best first; none has probability 0.

    At temperature 0, where the law is a point mass, they are those of the softmax of the processed row. Raises what law
    raises.
    """
    scores = processed(logits, sampling, prefix, prompt_length, allowed)
    own = _law(scores, sampling, logits)
    probs = own.probs if isinstance(own, Categorical) else scores.float().softmax(-1)
    values, tokens = probs.topk(min(n, probs.shape[-1]))
    return own, [(token, p) for token, p in zip(tokens.tolist(), values.tolist(), strict=True) if p > 0]


def greedy_tokens(logits: Tensor, chooser: Chooser | None = None) -> list[int]:
    """The best token of each row [n, V], the lowest id among equals; equal to law at temperature 0 without history."""
    best, tokens = (chooser and chooser.best(logits)) or _best(logits)
    for value in best:
        _check(value)
    return tokens


def _law(scores: Tensor, sampling: Sampling, logits: Tensor) -> Law:
    """The law of processed scores [V], which were made of logits."""
    (value,), (token,) = _best(scores[None])
    if value != value and not bool(logits.isnan().any()):
        raise InvalidLogits("no token is allowed here: the processors turned the scores into NaN")
    _check(value)
    if sampling.temperature == 0:
        return PointMass(token)
    if value == torch.inf:
        raise InvalidLogits("a logit is +inf, so the row has no softmax; check the model's dtype, or decode greedily")
    return Categorical(warped(scores, sampling).softmax(-1))


def _law_of_few(scores: Tensor, sampling: Sampling, logits: Tensor, allowed: Tensor) -> Law:
    """The law of processed scores [V] where few tokens are allowed, without running over the others again and again."""
    tokens = np.flatnonzero(allowed.numpy()[: scores.shape[-1]])
    if not len(tokens):
        _check(-torch.inf)
    own = _law(scores[torch.from_numpy(tokens).to(scores.device)], sampling, logits)
    ids = tokens.tolist()
    if isinstance(own, Categorical):
        left = [(token, p) for token, p in zip(ids, own.probs.tolist(), strict=True) if p > 0]
        own = Filtered([token for token, _ in left], [p for _, p in left])
    return PointMass(ids[own.token]) if isinstance(own, PointMass) else own


def _best(scores: Tensor) -> tuple[list[float], list[int]]:
    """The largest value of each row [n, V], NaN where there is one, and its first place.

    On a CPU one thread looks for it: torch's would be woken for some ten microseconds of work, and then wait awake.
    """
    if scores.device.type != "cpu" or scores.dtype not in (torch.float32, torch.float64):
        best, tokens = scores.max(-1)
        return best.tolist(), tokens.tolist()
    rows = scores.detach().numpy()
    places = rows.argmax(-1)
    return [float(row[place]) for row, place in zip(rows, places, strict=True)], places.tolist()


def processed(
    logits: Tensor, sampling: Sampling, prefix: Sequence[int], prompt_length: int, allowed: Tensor | None = None
) -> Tensor:
    """Logits [V] after penalties and processors, before temperature and filters; float32 unless nothing applies.

    Tokens that aren't allowed are -inf then.
    """
    scores = _penalised(logits, sampling, prefix, prompt_length) if sampling.uses_history else logits
    return scores if allowed is None else masked(scores, allowed)


def masked(scores: Tensor, allowed: Tensor) -> Tensor:
    """Scores [V] with -inf for the tokens that aren't allowed."""
    allowed = allowed[: scores.shape[-1]]  # a draft's vocabulary may be the smaller one
    if scores.device.type != "cpu" or scores.dtype != torch.float32:
        return torch.where(allowed.to(scores.device), scores, -torch.inf)
    left = scores.detach().clone()  # numpy fills in a third of the time
    np.copyto(left.numpy(), -np.inf, where=~allowed.numpy())
    return left


def _penalised(logits: Tensor, sampling: Sampling, prefix: Sequence[int], prompt_length: int) -> Tensor:
    ids = torch.tensor(prefix, dtype=torch.long, device=logits.device)
    scores = _called(sampling.before_penalties, ids, logits.float().clone())
    known = scores.shape[0]  # a draft's vocabulary may be the smaller one
    if sampling.repetition_penalty != 1:
        seen = ids[ids < known].unique()
        values = scores[seen]
        factor = sampling.repetition_penalty
        scores[seen] = torch.where(values > 0, values / factor, values * factor)
    if sampling.frequency_penalty or sampling.presence_penalty:
        counts = torch.bincount(ids[prompt_length:], minlength=known)[:known]
        scores -= sampling.frequency_penalty * counts + sampling.presence_penalty * (counts > 0)
    if sampling.no_repeat_ngram:
        scores[[token for token in _repeating(prefix, sampling.no_repeat_ngram) if token < known]] = -torch.inf
    return _called(sampling.processors, ids, scores)


def _called(processors: Sequence[Processor], ids: Tensor, scores: Tensor) -> Tensor:
    for processor in processors:
        scores = processor(ids[None], scores[None])[0]
    return scores


def warped(scores: Tensor, sampling: Sampling) -> Tensor:
    """Scores [V] after temperature, top-k, top-p, min-p and warpers, in float32; filtered tokens are -inf."""
    scores = scores.float() / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        scores = scores.masked_fill(scores < scores.topk(sampling.top_k).values[-1], -torch.inf)
    if sampling.top_p < 1:
        scores = _nucleus(scores, sampling.top_p)
    if sampling.min_p > 0:
        probs = scores.softmax(-1)
        scores = scores.masked_fill(probs < sampling.min_p * probs.max(), -torch.inf)
    for warper in sampling.warpers:
        scores = warper(scores.new_zeros((1, 0), dtype=torch.long), scores[None])[0]
    return scores


def _nucleus(scores: Tensor, top_p: float) -> Tensor:
    """Scores [V] with -inf outside the most probable tokens that hold top_p.

    Usually these are few. Then they are found without sorting the vocabulary, which takes milliseconds.
    """
    if scores.shape[-1] > NUCLEUS:
        best = scores.topk(NUCLEUS).values
        held = (best - scores.logsumexp(-1)).exp().cumsum(-1)
        last = int((held < top_p).sum())  # the token that completes the share
        if last + 1 < NUCLEUS and best[last] > best[last + 1]:
            return scores.masked_fill(scores < best[last], -torch.inf)
    # ascending, as transformers does: a tie at the edge keeps the same tokens as there
    values, order = scores.sort(descending=False)
    out = values.softmax(-1).cumsum(-1) <= 1 - top_p
    out[-1] = False
    return scores.masked_fill(torch.zeros_like(out).scatter_(0, order, out), -torch.inf)


def _repeating(prefix: Sequence[int], size: int) -> list[int]:
    """The tokens that would complete an n-gram of this size for the second time."""
    if len(prefix) + 1 < size:
        return []
    tail = tuple(prefix[len(prefix) - size + 1 :])
    return [prefix[end] for end in range(size - 1, len(prefix)) if tuple(prefix[end - size + 1 : end]) == tail]


def _check(best: float) -> None:
    if best != best:
        raise InvalidLogits("the model's logits contain NaN; check its weights and dtype")
    if best == -torch.inf:
        raise InvalidLogits("no token is allowed here: every logit is -inf after processors and grammar")

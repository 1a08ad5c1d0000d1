"""State wherever a processor may hide it is doubted or watched; what shows that it has none is not."""

import collections
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from forerun.core.processor_state import WATCHED, ReachableState, StateWatch, doubts

CALLS: list[int] = []
COUNTS = {"calls": 0}
NUMBERS = iter(range(9))
BIAS = torch.zeros(97)
BANNED = [3, 4]
FLAG = 1.0
Ids = Scores = Tensor


class Tally:
    calls = 0

    def __init__(self) -> None:
        self.own = 0

    def next(self) -> int:
        self.own += 1
        return self.own


TALLY = Tally()


def in_a_dictionary(ids: Ids, scores: Scores) -> Scores:
    COUNTS["calls"] += 1
    return scores


def in_a_list(ids: Ids, scores: Scores) -> Scores:
    CALLS.append(1)
    return scores


def in_an_iterator(ids: Ids, scores: Scores) -> Scores:
    return scores + next(NUMBERS)


def in_an_object(ids: Ids, scores: Scores) -> Scores:
    return scores + TALLY.next()


def in_a_class(ids: Ids, scores: Scores) -> Scores:
    Tally.calls += 1
    return scores


def in_a_default(ids: Ids, scores: Scores, seen: list[int] = []) -> Scores:  # noqa: B006
    seen.append(1)
    return scores


def in_torchs_generator(ids: Ids, scores: Scores) -> Scores:
    return scores + torch.rand(1)


def in_pythons_generator(ids: Ids, scores: Scores) -> Scores:
    return scores + random.random()


def in_a_tensor(ids: Ids, scores: Scores) -> Scores:
    BIAS.add_(1)
    return scores + BIAS


def in_a_tensor_of_another_name(ids: Ids, scores: Scores) -> Scores:
    bias = BIAS
    bias[0] += 1
    return scores + bias


def in_what_torch_writes_into(ids: Ids, scores: Scores) -> Scores:
    torch.add(scores, 1, out=BIAS)
    return scores


def in_a_nested_call(ids: Ids, scores: Scores) -> Scores:
    return in_a_list(ids, scores)


def in_globals(ids: Ids, scores: Scores) -> Scores:
    globals()["FLAG"] = 2.0
    return scores


class InAClassAttribute:
    items: ClassVar[list[int]] = []

    def __call__(self, ids: Ids, scores: Scores) -> Scores:
        self.items.append(1)
        return scores


class InAHelper:
    def __init__(self) -> None:
        self.tally = Tally()

    def __call__(self, ids: Ids, scores: Scores) -> Scores:
        return scores + self.tally.next()


class InAMethod:
    def __init__(self) -> None:
        self.calls = 0

    def note(self) -> None:
        self.calls += 1

    def __call__(self, ids: Ids, scores: Scores) -> Scores:
        self.note()
        return scores


class InAProperty:
    @property
    def bias(self) -> int:
        CALLS.append(1)
        return len(CALLS)

    def __call__(self, ids: Ids, scores: Scores) -> Scores:
        return scores + self.bias


class InADictionaryOfItsOwn:
    def __call__(self, ids: Ids, scores: Scores) -> Scores:
        self.__dict__["last"] = ids
        return scores


class BySetattr(transformers.LogitsProcessor):
    def __call__(self, input_ids: Ids, scores: Scores) -> Scores:
        setattr(self, "last", input_ids)  # noqa: B010
        return scores


class InSlots:
    __slots__ = ("calls",)

    def __call__(self, ids: Ids, scores: Scores) -> Scores:
        return scores


class Indexed:
    def __getitem__(self, index: int) -> int:
        CALLS.append(1)
        return 1

    def __call__(self, ids: Ids, scores: Scores) -> Scores:
        return scores + self[0]


def closures() -> Iterator[Any]:
    seen: list[int] = []
    note = seen.append
    counter, queue, array = itertools.count(), collections.deque([1]), np.zeros(3)
    numbers = torch.Generator()
    written = (number for number in range(9))
    yield lambda ids, scores: scores + next(counter)
    yield lambda ids, scores: scores + queue.popleft()
    yield lambda ids, scores: (note(1), scores)[1]
    yield lambda ids, scores: scores + array[0]
    yield lambda ids, scores: scores.clone().uniform_(generator=numbers)
    yield lambda ids, scores: scores + written.send(None)
    yield lambda ids, scores: scores + seen.__len__()
    yield functools.partial(lambda held, ids, scores: (held.append(1), scores)[1], [])
    yield functools.partial(in_a_default, seen=seen)

    @functools.lru_cache
    def kept(n: int) -> int:
        return n

    yield lambda ids, scores: scores + kept(3)

    @functools.wraps(BIAS.__class__)
    def around(ids: Ids, scores: Scores) -> Scores:
        seen.append(1)
        return scores

    yield around
    yield TALLY.next
    yield torch.nn.Dropout()
    yield InAMethod().__call__


NAMED = [value for name, value in list(globals().items()) if name.startswith("in_")]
CLASSES = [InAClassAttribute, InAHelper, InAMethod, InAProperty, InADictionaryOfItsOwn, BySetattr, InSlots, Indexed]
STATEFUL = [*NAMED, *(kind() for kind in CLASSES), *closures()]


def found(processor: Any) -> tuple[str | None, ReachableState]:
    reach = ReachableState(lambda value: isinstance(value, transformers.TopKLogitsWarper))
    return next(doubts(processor, reach), None), reach


@pytest.mark.parametrize("processor", STATEFUL, ids=[getattr(p, "__name__", type(p).__name__) for p in STATEFUL])
def test_whoever_may_remember_its_calls_is_doubted(processor: Any) -> None:
    assert found(processor)[0] is not None


def test_a_doubt_says_where_the_state_may_be() -> None:
    assert found(in_a_list)[0] == "it may change what it holds (.append)"
    assert found(in_an_object)[0] == "it holds a Tally ('TALLY'), about which nothing is known"
    assert found(in_a_class)[0] == "it keeps state between calls (it stores 'calls')"
    assert found(in_pythons_generator)[0] == "it takes the attribute 'random'"


def forbids(ids: Ids, scores: Scores) -> Scores:
    scores[:, BANNED] = -torch.inf
    return scores


def goes_by_length(ids: Ids, scores: Scores) -> Scores:
    if ids.shape[1] < 12:
        scores[:, 3] = float("-inf")
    return scores


def loops(ids: Ids, scores: Scores) -> Scores:
    out: list[int] = []
    for token in {*ids[0].tolist()}:
        scores[0, token] -= 1.0
        out.append(token)
    return scores.index_fill(1, torch.tensor(out), -1.0)


def works_in_place(ids: Ids, scores: Scores) -> Scores:
    scores.masked_fill_(scores < 0, -3.0)
    scores += 1
    return F.log_softmax(scores, -1)


class Allows(transformers.LogitsProcessor):
    """What users write: tensors and lists of its own, and a method."""

    def __init__(self) -> None:
        self.bias = torch.zeros(97)
        self.tokens = [1, 2]

    def allowed(self, ids: Ids) -> list[int]:
        return [token for token in self.tokens if token not in ids.tolist()]

    def __call__(self, input_ids: Ids, scores: Scores) -> Scores:
        mask = torch.full_like(scores, -torch.inf)
        mask[:, self.allowed(input_ids)] = 0
        return scores + mask + self.bias


WARPER = transformers.TopKLogitsWarper(5)
PURE: list[Any] = [
    forbids,
    goes_by_length,
    loops,
    works_in_place,
    Allows(),
    lambda ids, scores: -scores * FLAG,
    lambda ids, scores: WARPER(ids, scores),
    functools.partial(lambda ids, scores, bias: scores + bias, bias=2.0),
    torch.add,
]


@pytest.mark.parametrize("processor", PURE)
def test_a_function_of_ids_and_scores_is_not_doubted(processor: Any) -> None:
    assert found(processor)[0] is None


def watched(processor: Callable[..., Any]) -> Callable[[], Any]:
    doubt, reach = found(processor)
    assert doubt is None
    watch = StateWatch(processor, reach, lambda: KeyError("changed"))
    return lambda: watch(torch.ones(1, 1, dtype=torch.long), torch.zeros(1, 97))


@pytest.mark.parametrize("processor", PURE)
def test_what_changes_nothing_is_watched_in_silence(processor: Any) -> None:
    call = watched(processor)
    call()
    call()


def test_what_changes_between_two_calls_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"bias": 1.0, "tokens": [2]}
    allows = Allows()
    flag = 1.0

    def change_flag() -> None:
        nonlocal flag
        flag = 2.0

    changes: list[tuple[Any, Callable[[], Any]]] = [
        (lambda ids, scores: scores + held["bias"], lambda: held.update(bias=2.0)),
        (lambda ids, scores: scores + held["bias"], lambda: held["tokens"].append(3)),  # type: ignore[attr-defined]
        (lambda ids, scores: scores * flag, change_flag),
        (lambda ids, scores: scores * FLAG, lambda: monkeypatch.setitem(globals(), "FLAG", 3.0)),
        (allows, lambda: allows.bias.add_(1)),
        (allows, lambda: allows.tokens.append(3)),
        (allows, lambda: setattr(allows, "bias", torch.ones(97))),
    ]
    for processor, change in changes:
        call = watched(processor)
        call()
        change()
        with pytest.raises(KeyError, match="changed"):
            call()


def test_what_the_code_does_not_show_is_noticed_when_it_happens() -> None:
    """A view of a tensor belongs to the call as far as one instruction tells."""
    kept = torch.zeros(97)

    def hidden(ids: Ids, scores: Scores) -> Scores:
        view = kept.view(1, -1)
        view[0] = scores[0]
        return scores

    with pytest.raises(KeyError, match="changed"):
        watched(hidden)()


def test_more_than_can_be_watched_is_doubted() -> None:
    held = list(range(WATCHED + 1))
    doubt, _ = found(lambda ids, scores: scores + held[0])
    assert doubt == f"it holds {WATCHED + 1} values, and at most {WATCHED} are watched"


def test_modules_are_followed_to_what_is_taken_of_them() -> None:
    other = ModuleType("other")
    other.bias = 2.0  # type: ignore[attr-defined]
    assert found(lambda ids, scores: scores + torch.pi)[0] is None
    assert found(lambda ids, scores: scores + other.bias)[0] == "it uses the module other"
    assert found(lambda ids, scores: F.dropout(scores))[0] is not None

from collections.abc import AsyncGenerator
from itertools import islice
from typing import Any

import pytest
import torch

from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.forward import Rows
from forerun.core.identity import Identity
from forerun.core.values import ROOT, Context, DraftCounts, Sampling, Step
from forerun.drafters.base import Parts
from forerun.drafters.draft_model import ModelDraft, build, compare_vocabularies
from forerun.errors import UnsupportedOption
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.testing import tiny_model

IDENTITY = Identity("llama", 2, 32, 64, "0" * 16)
TARGET = {"a": 0, "b": 1, "c": 2}
GREEDY = Sampling()


@pytest.fixture(scope="module")
def target() -> SequencePool:
    return SequencePool(HFRunner(tiny_model("llama")))


@pytest.fixture(scope="module")
def small() -> Any:
    return tiny_model("qwen2", seed=1, num_hidden_layers=2)


def made(
    target: SequencePool, model: Any, ours: Any = None, theirs: Any = None, draws: bool = True, reads: int = 0
) -> tuple[Drafter, SequencePool]:
    pool = SequencePool(HFRunner(model), drafting=True)
    parts = Parts(
        target, IDENTITY, ours, lambda other: (pool, theirs) if other == "small" else pytest.fail("another model")
    )
    return build(parts, model="small", draws=draws, reads=reads)(target.acquire()), pool


def steps(drafter: Drafter, ids: list[int], number: int, sampling: Sampling = GREEDY) -> list[Step]:
    return list(islice(drive(drafter.draft(Context(ids, Seeded(2), sampling))), number))


def greedy(model: Any, ids: list[int], number: int, vocabulary: int = 97) -> list[int]:
    ids = list(ids)
    for _ in range(number):
        with torch.no_grad():
            row = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1, :vocabulary]
        ids.append(int(row.argmax()))
    return ids[-number:]


def test_the_other_model_drafts_its_own_greedy_text(target: SequencePool, small: Any) -> None:
    drafter, _ = made(target, small)
    drafted = steps(drafter, [5, 6, 7], 4)
    assert [step.tokens[0] for step in drafted] == greedy(small, [5, 6, 7], 4)
    assert [step.parents for step in drafted] == [(ROOT,), (0,), (1,), (2,)]


def test_it_follows_the_text_whatever_became_of_its_drafts(target: SequencePool, small: Any) -> None:
    drafter, _ = made(target, small)
    ids = [5, 6, 7]
    for emitted in ([1, 2], [], greedy(small, [5, 6, 7, 1, 2], 2), [3]):
        ids += emitted
        assert [step.tokens[0] for step in steps(drafter, list(ids), 3)] == greedy(small, ids, 3)


def test_a_sampled_draft_carries_the_laws_that_it_was_drawn_from(target: SequencePool, small: Any) -> None:
    drafter, _ = made(target, small)
    for number, step in enumerate(steps(drafter, [5, 6, 7], 3, Sampling(temperature=1.0, top_k=5))):
        law = step.laws[0]
        assert law is not None
        assert step.tokens[0] == Seeded(2).propose(law, 3 + number, 3)
        assert law.probability(step.tokens[0]) > 0


def test_where_it_does_not_draw_it_drafts_the_best_tokens_of_a_sampled_text(target: SequencePool, small: Any) -> None:
    drafter, _ = made(target, small, draws=False)
    drafted = steps(drafter, [5, 6, 7], 4, Sampling(temperature=1.0, top_k=5))

    assert [step.tokens[0] for step in drafted] == greedy(small, [5, 6, 7], 4)
    assert [step.laws for step in drafted] == [(None,)] * 4


def test_a_token_that_the_target_does_not_have_is_never_drafted(target: SequencePool) -> None:
    padded = tiny_model("llama", seed=2, vocab_size=500)
    drafter, _ = made(target, padded)
    drafted = steps(drafter, [5, 6, 7], 5)
    assert [step.tokens[0] for step in drafted] == greedy(padded, [5, 6, 7], 5)
    assert all(step.logits is not None and step.logits.shape == (1, 97) for step in drafted)


def test_a_smaller_vocabulary_drafts_what_it_has(target: SequencePool) -> None:
    few = tiny_model("llama", seed=2, vocab_size=20)
    drafter, _ = made(target, few)
    assert [step.tokens[0] for step in steps(drafter, [5, 6, 7], 3)] == greedy(few, [5, 6, 7], 3)


def test_a_token_that_the_draft_model_does_not_have_is_read_as_another(target: SequencePool) -> None:
    few = tiny_model("llama", seed=2, vocab_size=20)
    drafter, _ = made(target, few)
    assert [step.tokens[0] for step in steps(drafter, [5, 60, 7], 3)] == greedy(few, [5, 0, 7], 3)
    assert [step.tokens[0] for step in steps(drafter, [5, 60, 7, 96], 3)] == greedy(few, [5, 0, 7, 0], 3)
    drafter.close()
    read = next(drive(_read(made(target, few)[0], [5, 60, 7, 96, 3])))
    assert read.logits[:, :20].argmax(-1).tolist() == [
        greedy(few, ids, 1)[0] for ids in ([5, 0, 7], [5, 0, 7, 0], [5, 0, 7, 0, 3])
    ]


async def _read(drafter: Drafter, ids: list[int]) -> AsyncGenerator[Rows]:
    yield await drafter.read(ids, 3)


def test_processors_see_the_scores_of_all_the_targets_tokens(target: SequencePool) -> None:
    def forbid_the_last(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, 96] = -torch.inf
        return scores

    few = tiny_model("llama", seed=2, vocab_size=20)
    drafter, _ = made(target, few)
    drafted = steps(drafter, [5, 6, 7], 3, Sampling(processors=(forbid_the_last,)))
    assert [step.tokens[0] for step in drafted] == greedy(few, [5, 6, 7], 3)


def test_a_row_that_is_no_law_ends_the_draft_and_is_counted(target: SequencePool) -> None:
    model = tiny_model("llama", seed=2)
    model.model.embed_tokens.weight.data[60] = torch.nan
    drafter, _ = made(target, model)
    assert len(steps(drafter, [5, 6, 7], 2)) == 2
    assert drafter.unused.counts == DraftCounts()
    assert steps(drafter, [5, 60], 2) == []
    assert drafter.unused.counts == DraftCounts(forwards=1, invalid=1)
    assert drafter.unused.seconds > 0


def test_drafting_ends_where_the_draft_models_context_does(target: SequencePool) -> None:
    short = tiny_model("llama", seed=1, max_position_embeddings=6)
    drafter, _ = made(target, short)
    assert len(steps(drafter, [5, 6, 7, 8], 10)) == 3
    assert steps(drafter, list(range(1, 8)), 10) == []


def test_of_a_long_text_it_reads_the_last_tokens_and_follows_from_there(target: SequencePool, small: Any) -> None:
    drafter, _ = made(target, small, reads=4)
    ids = list(range(5, 25))
    assert drafter.unread(ids) == 4
    for emitted in ([], [1, 2], [3, 4, 9]):
        ids += emitted
        assert [step.tokens[0] for step in steps(drafter, list(ids), 3)] == greedy(small, ids[16:], 3)
    assert drafter.unread([*ids, 8]) == 1


def test_a_text_no_longer_than_that_is_read_whole(target: SequencePool, small: Any) -> None:
    drafter, _ = made(target, small, reads=4)
    ids = [5, 6, 7, 8]
    assert drafter.unread(ids) == 4
    assert [step.tokens[0] for step in steps(drafter, ids, 3)] == greedy(small, ids, 3)


def test_what_it_knows_of_a_text_from_before_it_does_not_leave_out(target: SequencePool, small: Any) -> None:
    before, pool = made(target, small)
    ids = list(range(5, 25))
    steps(before, ids, 1)
    before.close()
    drafter = ModelDraft(pool, 97, reads=4)
    assert drafter.unread([*ids, 1]) == 1
    assert [step.tokens[0] for step in steps(drafter, [*ids, 1], 3)] == greedy(small, [*ids, 1], 3)


def test_a_text_longer_than_its_context_is_drafted_for_from_its_end(target: SequencePool) -> None:
    short = tiny_model("llama", seed=1, max_position_embeddings=6)
    drafter, _ = made(target, short, reads=3)
    ids = list(range(1, 21))
    assert [step.tokens[0] for step in steps(drafter, ids, 10)] == greedy(short, ids[17:], 4)


def test_a_negative_number_of_tokens_to_read_is_refused(target: SequencePool, small: Any) -> None:
    with pytest.raises(UnsupportedOption, match="reads must be 0, for the whole text, or a number of tokens, got -1"):
        made(target, small, reads=-1)


def test_a_closed_drafter_gives_its_sequence_back(target: SequencePool, small: Any) -> None:
    drafter, pool = made(target, small)
    steps(drafter, [5, 6, 7], 2)
    drafter.close()
    assert pool.acquire([5, 6, 7]).ids[:3] == [5, 6, 7]


def test_a_drafter_that_never_drafted_has_nothing_to_give_back(target: SequencePool, small: Any) -> None:
    drafter, pool = made(target, small)
    drafter.close()
    assert pool.acquire([5, 6]).ids == []


def test_vocabularies_that_differ_in_padding_alone_are_equal(target: SequencePool, small: Any) -> None:
    made(target, small, TARGET, {**TARGET, "<pad 3>": 3, "<pad 200>": 200})
    made(target, small, {**TARGET, "<pad 3>": 3}, TARGET)


def test_another_tokenizer_is_refused_with_the_token_that_differs(target: SequencePool, small: Any) -> None:
    with pytest.raises(UnsupportedOption, match="has another tokenizer: id 1 is 'x' there and 'b' in the target"):
        made(target, small, TARGET, {"a": 0, "x": 1, "c": 2})


def test_ids_beyond_the_shared_vocabulary_are_not_compared() -> None:
    compare_vocabularies({"a": 0, "b": 1}, {"a": 0, "x": 1}, 1, "small")


def test_without_a_tokenizer_there_is_nothing_to_compare(target: SequencePool, small: Any) -> None:
    made(target, small, None, {"x": 0})
    made(target, small, TARGET, None)

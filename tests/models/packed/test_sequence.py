"""Sequences: scratch rows, keeping, dropping, syncing, resuming; and what happens when resuming goes wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from forerun.core.forward import Rows
from forerun.core.values import ROOT
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.layers import decoder_layers
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.runner import CHUNK, HFRunner
from forerun.models.packed.sequence import Sequence, shared_prefix
from forerun.testing import VOCABULARY, tiny_model

from ..running import chain, finish, off, own_logits, text

EXIT = LayerPlan.early_exit(2, 4)
SKIP = LayerPlan.skip(4, attention=[1], mlp=[2])


@pytest.fixture
def sequence(runner: HFRunner) -> Sequence:
    """A sequence after a prefix of ten tokens."""
    sequence = Sequence(runner)
    finish(sequence.sync(text(10)))
    return sequence


def next_rows(sequence: Sequence) -> Tensor:
    """The logits after the prefix and one more token, computed on the prefix's own keys and values."""
    rows: Rows = finish(sequence.complete([3], [ROOT]))
    sequence.drop()
    return rows.logits


def test_scratch_rows_equal_the_models_own_forward(sequence: Sequence, model) -> None:
    rows = finish(sequence.forward([1, 2, 3]))
    assert off(rows.logits, own_logits(model, [*text(10), 1, 2, 3])[-3:]) < 1e-4
    assert sequence.scratch == (1, 2, 3)
    assert sequence.ids == text(10)


def test_scratch_rows_go_on_where_the_last_ones_ended(sequence: Sequence, model) -> None:
    finish(sequence.forward([1, 2]))
    rows = finish(sequence.forward([3]))
    assert off(rows.logits, own_logits(model, [*text(10), 1, 2, 3])[-1:]) < 1e-4


def test_kept_rows_become_the_prefix_and_the_rest_vanishes(sequence: Sequence, model) -> None:
    finish(sequence.forward([1, 2, 3, 4, 5], [ROOT, 0, 0, 2, 3]))
    sequence.keep([0, 2, 3])
    assert sequence.ids == [*text(10), 1, 3, 4]
    assert sequence.scratch == ()
    assert off(next_rows(sequence), own_logits(model, [*sequence.ids, 3])[-1:]) < 1e-4


def test_keeping_nothing_drops_everything(sequence: Sequence, model) -> None:
    finish(sequence.forward([1, 2]))
    sequence.keep([])
    assert (sequence.ids, sequence.scratch) == (text(10), ())
    assert off(next_rows(sequence), own_logits(model, [*text(10), 3])[-1:]) < 1e-4


@pytest.mark.parametrize("rows", [[1], [0, 3], [0, 1, 2], [0, 0], [5], [-1], [0, 4]])
def test_only_a_path_can_be_kept(sequence: Sequence, rows: list[int]) -> None:
    finish(sequence.forward([1, 2, 3, 4, 5], [ROOT, 0, 0, 2, 3]))
    with pytest.raises(ValueError, match="must be a path of scratch rows"):
        sequence.keep(rows)
    assert sequence.ids == text(10)
    assert len(sequence.scratch) == 5


@pytest.mark.parametrize("plan", [EXIT, SKIP])
def test_rows_with_layers_left_out_can_not_be_kept(sequence: Sequence, plan: LayerPlan) -> None:
    finish(sequence.forward([1, 2], plan=plan))
    with pytest.raises(ValueError, match="scratch row 0 was computed with layers left out; complete it first"):
        sequence.keep([0])


@pytest.mark.parametrize(
    ("first", "second"),
    [(EXIT, FULL), (SKIP, FULL), (EXIT, SKIP), (SKIP, LayerPlan.skip(4, mlp=[1])), (EXIT, LayerPlan.early_exit(3, 4))],
)
def test_rows_do_not_read_keys_that_were_never_written(sequence: Sequence, first: LayerPlan, second: LayerPlan) -> None:
    finish(sequence.forward([1], plan=first))
    with pytest.raises(ValueError, match="the scratch rows left out layers that this plan attends in"):
        finish(sequence.forward([2], plan=second))


@pytest.mark.parametrize(
    ("first", "second"), [(FULL, EXIT), (FULL, SKIP), (SKIP, SKIP), (LayerPlan.early_exit(3, 4), EXIT)]
)
def test_a_plan_may_follow_one_that_wrote_all_it_reads(sequence: Sequence, first: LayerPlan, second: LayerPlan) -> None:
    finish(sequence.forward([1], plan=first))
    assert finish(sequence.forward([2], plan=second)).logits.isfinite().all()


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ([1], [0], r"scratch row 0 has parent 0; it must lie in \[-1, -1\]"),
        ([1, 2], [ROOT, 2], r"scratch row 1 has parent 2; it must lie in \[-1, 0\]"),
        ([1, 2], [ROOT, -2], r"scratch row 1 has parent -2"),
        ([1, 2], [ROOT], "each token needs a parent, got 2 tokens and 1 parents"),
        ([], [], "a forward needs at least one token"),
        ([1, VOCABULARY], [ROOT, 0], f"token ids must be in 0..{VOCABULARY - 1}, got {VOCABULARY}"),
        ([-1], [ROOT], "got -1"),
    ],
)
def test_rows_that_make_no_sense_are_refused_before_they_run(sequence: Sequence, tokens, parents, message) -> None:
    with pytest.raises(ValueError, match=message):
        finish(sequence.forward(tokens, parents))
    assert sequence.scratch == ()


def test_sync_needs_a_token(sequence: Sequence) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        finish(sequence.sync([]))


@pytest.mark.parametrize(
    ("ids", "computed"),
    [
        ([*text(10), 1, 2], [1, 2]),
        (text(10), text(10)[9:]),
        (text(6), text(10)[5:6]),
        ([*text(4), 96, 1], [96, 1]),
        ([(text(1)[0] + 1) % VOCABULARY, 5], [(text(1)[0] + 1) % VOCABULARY, 5]),
    ],
    ids=["longer", "same", "shorter", "branching", "other"],
)
def test_sync_computes_what_is_new_and_the_last_token(
    sequence: Sequence, model, ids: list[int], computed: list[int]
) -> None:
    finish(sequence.forward([1, 2], plan=EXIT))
    waiting = sequence.sync(ids)
    request = waiting.send(None)
    waiting.close()
    assert list(request.tokens) == computed
    rows = finish(sequence.sync(ids))
    assert off(rows.logits, own_logits(model, ids)[-1:]) < 1e-4
    assert (sequence.ids, sequence.scratch) == (ids, ())


def test_long_texts_are_synced_in_chunks_and_the_head_runs_on_the_last_row(model) -> None:
    long = tiny_model("llama", max_position_embeddings=2048)
    sequence = Sequence(HFRunner(long), capacity=16)
    ids = text(2 * CHUNK + 7)
    sizes: list[tuple[int, int]] = []
    waiting = sequence.sync(ids)
    try:
        request = waiting.send(None)
        while True:
            sizes.append((len(request.tokens), request.want))
            request = waiting.send(request.runner.execute([request])[0])
    except StopIteration as done:
        rows = done.value
    assert sizes == [(CHUNK, 0), (CHUNK, 0), (7, 1)]
    assert off(rows.logits, own_logits(long, ids)[-1:]) < 1e-4


def test_the_context_limit_counts_positions_and_not_rows() -> None:
    short = Sequence(HFRunner(tiny_model("llama", max_position_embeddings=12)))
    finish(short.sync(text(10)))
    finish(short.forward([1, 2, 3, 4], [ROOT, ROOT, 0, 1]))
    with pytest.raises(ValueError, match="the text has 13 tokens and LlamaForCausalLM holds 12"):
        finish(short.forward([5], [2]))


def rows_by_layer(runner: HFRunner, work: Callable[[], object]) -> list[int]:
    """How many rows each layer's MLP computes while work runs."""
    counts = [0, 0, 0, 0]

    def count(index: int):
        def hook(module, args) -> None:
            counts[index] += args[0].shape[1]

        return hook

    hooks = [layer.mlp.register_forward_pre_hook(count(i)) for i, layer in enumerate(decoder_layers(runner.model))]
    work()
    for hook in hooks:
        hook.remove()
    return counts


def test_completing_skips_the_layers_below_the_exit_for_drafted_rows(sequence: Sequence, model) -> None:
    finish(sequence.forward([1, 2, 3], plan=EXIT))
    rows: list[Rows] = []
    counts = rows_by_layer(sequence.runner, lambda: rows.append(finish(sequence.complete([1, 2, 3, 4], chain(4)))))
    assert counts == [1, 1, 4, 4]
    assert off(rows[0].logits, own_logits(model, [*text(10), 1, 2, 3, 4])[-4:]) < 1e-4


def test_completing_exactly_the_drafted_rows_computes_no_layer_below_the_exit(sequence: Sequence, model) -> None:
    finish(sequence.forward([1, 2], plan=EXIT))
    rows: list[Rows] = []
    counts = rows_by_layer(sequence.runner, lambda: rows.append(finish(sequence.complete([1, 2], chain(2)))))
    assert counts == [0, 0, 2, 2]
    assert off(rows[0].logits, own_logits(model, [*text(10), 1, 2])[-2:]) < 1e-4


@pytest.mark.parametrize(
    ("tokens", "parents", "resumed"),
    [
        ([1, 9, 3], [ROOT, 0, 1], 1),
        ([9, 2, 3], [ROOT, 0, 1], 0),
        ([1, 2, 3], [ROOT, ROOT, 1], 1),
        ([1, 2], [ROOT, 0], 2),
    ],
    ids=["other token", "other first token", "other parent", "fewer rows"],
)
def test_only_leading_rows_with_equal_tokens_and_parents_are_resumed(sequence, model, tokens, parents, resumed) -> None:
    finish(sequence.forward([1, 2, 3], plan=EXIT))
    rows: list[Rows] = []
    counts = rows_by_layer(sequence.runner, lambda: rows.append(finish(sequence.complete(tokens, parents))))
    assert counts == [len(tokens) - resumed] * 2 + [len(tokens)] * 2
    path = [tokens[-1]]
    node = parents[-1]
    while node != ROOT:
        path.insert(0, tokens[node])
        node = parents[node]
    assert off(rows[0].logits[-1:], own_logits(model, [*text(10), *path])[-1:]) < 1e-4


def test_a_drafted_tree_is_resumed_too(sequence: Sequence, model) -> None:
    finish(sequence.forward([1], plan=EXIT))
    finish(sequence.forward([2, 3], [0, 0], plan=EXIT))
    rows: list[Rows] = []
    done = lambda: rows.append(finish(sequence.complete([1, 2, 3, 4], [ROOT, 0, 0, 2])))  # noqa: E731
    assert rows_by_layer(sequence.runner, done) == [1, 1, 4, 4]
    assert off(rows[0].logits[[0, 2, 3]], own_logits(model, [*text(10), 1, 3, 4])[-3:]) < 1e-4


def test_rows_of_two_exits_resume_only_as_far_as_they_share_one(sequence: Sequence, model) -> None:
    finish(sequence.forward([1], plan=LayerPlan.early_exit(3, 4)))
    finish(sequence.forward([2], plan=EXIT))
    rows: list[Rows] = []
    counts = rows_by_layer(sequence.runner, lambda: rows.append(finish(sequence.complete([1, 2], chain(2)))))
    assert counts == [1, 1, 1, 2]
    assert off(rows[0].logits, own_logits(model, [*text(10), 1, 2])[-2:]) < 1e-4


@pytest.mark.parametrize("plan", [SKIP, LayerPlan.skip(4, [2, 3], [2, 3]), FULL], ids=["skip", "skipped end", "full"])
def test_rows_of_any_other_plan_are_computed_anew(sequence: Sequence, model, plan: LayerPlan) -> None:
    finish(sequence.forward([1, 2, 3], plan=plan))
    rows: list[Rows] = []
    counts = rows_by_layer(sequence.runner, lambda: rows.append(finish(sequence.complete([1, 2, 3], chain(3)))))
    assert counts == [3, 3, 3, 3]
    assert off(rows[0].logits, own_logits(model, [*text(10), 1, 2, 3])[-3:]) < 1e-4


def test_completed_rows_are_not_resumed_again(sequence: Sequence) -> None:
    finish(sequence.forward([1, 2], plan=EXIT))
    finish(sequence.complete([1, 2], chain(2)))
    assert rows_by_layer(sequence.runner, lambda: finish(sequence.complete([1, 2], chain(2)))) == [2, 2, 2, 2]


def test_dropped_rows_are_not_resumed(sequence: Sequence) -> None:
    finish(sequence.forward([1, 2], plan=EXIT))
    sequence.drop()
    assert rows_by_layer(sequence.runner, lambda: finish(sequence.complete([1, 2], chain(2)))) == [2, 2, 2, 2]


def wrongly_resumed(sequence: Sequence, states: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The logits of two rows that go on from the given states at layer 2, whatever their plan and tokens were."""
    with monkeypatch.context() as patched:
        patched.setattr(Sequence, "_resumable", lambda self, tokens, parents: (2, list(states)))
        logits: Tensor = finish(sequence.complete([1, 2], chain(2))).logits
    return logits


def test_resuming_the_right_states_gives_the_right_rows(sequence: Sequence, model, monkeypatch) -> None:
    states = finish(sequence.forward([1, 2], plan=EXIT)).taps[2]
    expected = own_logits(model, [*text(10), 1, 2])[-2:]
    assert off(wrongly_resumed(sequence, states, monkeypatch), expected) < 1e-4


@pytest.mark.parametrize(
    "mutant", ["rows of a skip plan", "rows of another model", "rows of other tokens", "rows of small weights"]
)
def test_resuming_wrong_states_would_be_noticed(sequence: Sequence, model, monkeypatch, mutant: str) -> None:
    """Each mutant resumes what _resumable refuses; all of them must be far off, or the equalities above prove nothing."""
    taps = frozenset({2})
    if mutant == "rows of a skip plan":
        states = finish(sequence.forward([1, 2], plan=SKIP, taps=taps)).taps[2]
    elif mutant == "rows of other tokens":
        states = finish(sequence.forward([4, 5], plan=EXIT)).taps[2]
    else:
        other = tiny_model("llama", seed=1 if mutant == "rows of another model" else 0)
        if mutant == "rows of small weights":
            for parameter in other.parameters():
                step = parameter.data.abs().amax(-1, keepdim=True) / 7
                parameter.data = (parameter.data / step).round() * step
        neighbour = Sequence(HFRunner(other))
        finish(neighbour.sync(text(10)))
        states = finish(neighbour.forward([1, 2], plan=EXIT)).taps[2]
        finish(sequence.forward([1, 2], plan=EXIT))
    expected = own_logits(model, [*text(10), 1, 2])[-2:]
    assert off(wrongly_resumed(sequence, states, monkeypatch), expected) > 1e-2


PLANS = [FULL, EXIT, LayerPlan.early_exit(1, 4), SKIP, LayerPlan.skip(4, attention=[0, 3], mlp=[0])]


def random_walk(sequence: Sequence, model, seed: int, turns: int) -> None:
    """Sync, draft, complete, keep and drop at random; after each turn the prefix says what a fresh forward says."""
    generator = torch.Generator().manual_seed(seed)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    def tree(size: int) -> tuple[list[int], list[int]]:
        parents = [number(max(ROOT, row - 3), row) for row in range(size)]
        return [number(0, VOCABULARY) for _ in range(size)], parents

    for _ in range(turns):
        if number(0, 4) == 0:
            wanted = [*sequence.ids[: number(0, len(sequence.ids) + 1)], *tree(number(1, 6))[0]]
            finish(sequence.sync(wanted))
            assert sequence.ids == wanted
        plan = PLANS[number(0, len(PLANS))]
        tokens, parents = tree(number(1, 8))
        drafted = number(0, len(tokens) + 1)
        for row in range(drafted):
            finish(sequence.forward(tokens[row : row + 1], parents[row : row + 1], plan))
        if number(0, 4) == 0:
            tokens[0] = number(0, VOCABULARY)
        rows = finish(sequence.complete(tokens, parents))
        path = [number(0, len(tokens))]
        while parents[path[0]] != ROOT:
            path.insert(0, parents[path[0]])
        own = own_logits(model, [*sequence.ids, *(tokens[row] for row in path)])
        assert off(rows.logits[path], own[len(sequence.ids) :]) < 1e-4
        sequence.keep(path[: number(0, len(path) + 1)])
        if sequence.ids:
            assert off(next_rows(sequence), own_logits(model, [*sequence.ids, 3])[-1:]) < 1e-4


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "gemma2", "gemma3_text", "mistral", "llama4_text", "opt", "gpt_oss"]
)
@pytest.mark.parametrize("seed", range(2))
def test_the_prefix_equals_a_fresh_forward_after_any_operations(family: str, seed: int) -> None:
    own = tiny_model(family)
    random_walk(Sequence(HFRunner(own), capacity=4), own, seed, turns=14)


@pytest.mark.parametrize("mutant", ["keeps the order", "keeps one row late", "reuses one token too many"])
def test_the_random_walk_notices_a_broken_cache(model, runner, monkeypatch, mutant: str) -> None:
    from forerun.models.packed import sequence as module
    from forerun.models.packed.store import LayerStore

    move = LayerStore.move
    if mutant == "keeps the order":
        monkeypatch.setattr(LayerStore, "move", lambda self, slots, start: None)
    elif mutant == "keeps one row late":
        monkeypatch.setattr(
            LayerStore, "move", lambda self, slots, start: move(self, [slot + 1 for slot in slots], start)
        )
    else:
        monkeypatch.setattr(module, "shared_prefix", lambda one, other: min(len(one), len(other)))
    with pytest.raises(AssertionError):
        random_walk(Sequence(runner), model, seed=0, turns=14)


@pytest.mark.parametrize(
    ("one", "other", "shared"), [([], [], 0), ([1], [], 0), ([1, 2], [1, 2, 3], 2), ([1, 2], [1, 3], 1), ([2], [1], 0)]
)
def test_the_shared_prefix_ends_at_the_first_difference(one: list[int], other: list[int], shared: int) -> None:
    assert shared_prefix(one, other) == shared_prefix(other, one) == shared


def small_head(tokens: tuple[int, ...] = (3, 5, 8)) -> Sequence:
    """A sequence all of whose rows pass a head of these tokens."""
    runner = LeanRunner.from_model(tiny_model("llama"))
    return Sequence(runner, drafting=True, plan=LayerPlan(head=runner.add_head(tokens)))


def test_a_sequence_under_a_plan_of_its_own_keeps_rows_of_that_plan() -> None:
    sequence = small_head()
    whole = Sequence(sequence.runner)
    rows, expected = (finish(one.sync(text(10))) for one in (sequence, whole))
    held = rows.logits.isfinite()
    assert held.nonzero()[:, 1].tolist() == [3, 5, 8]
    assert off(rows.logits[held], expected.logits[held]) < 1e-5
    finish(sequence.forward([1, 2]))
    sequence.drop()
    finish(sequence.complete([1], [ROOT]))
    sequence.keep([0])
    assert sequence.ids == [*text(10), 1]


def test_rows_of_another_plan_are_not_kept_under_a_plan_of_its_own() -> None:
    sequence = small_head()
    finish(sequence.sync(text(4)))
    finish(sequence.forward([1], plan=FULL))
    with pytest.raises(ValueError, match="computed with layers left out"):
        sequence.keep([0])


@pytest.mark.parametrize("plan", [EXIT, SKIP])
def test_a_plan_that_leaves_out_layers_is_no_sequences_own(runner: HFRunner, plan: LayerPlan) -> None:
    with pytest.raises(ValueError, match="a sequence's own plan must keep all layers"):
        Sequence(runner, plan=plan)

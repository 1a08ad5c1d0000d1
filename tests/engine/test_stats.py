"""Statistics as a fold over rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forerun.core.values import ROOT, Draft, DraftCounts, Round, Timing, Verdict
from forerun.engine.stats import Stats


def chain(*tokens: int) -> Draft:
    return Draft(tokens, tuple(range(ROOT, len(tokens) - 1)), (None,) * len(tokens))


def prefill(token: int = 1) -> Round:
    return Round((token,), Draft(), Verdict((), (token,)), start=4, prefill=True, timing=Timing(forward=3.0))


def turn(draft: Draft, accepted: int, tokens: int | None = None) -> Round:
    emitted = tuple(range(accepted + 1 if tokens is None else tokens))
    verdict = Verdict(tuple(range(accepted)), tuple(range(accepted + 1)))
    return Round(emitted, draft, verdict, start=5, timing=Timing(draft=0.5, forward=0.75, law=0.125, decide=0.25))


def test_no_rounds_give_zeros() -> None:
    stats = Stats()
    assert stats.tokens_per_round == stats.acceptance == stats.discard_rate == stats.verification_rate == 0
    assert stats.acceptance_per_position == ()


def test_the_prefill_counts_as_a_token_but_not_as_a_round() -> None:
    stats = Stats([prefill()])
    assert (stats.tokens, stats.decoded, stats.rounds) == (1, 0, 0)
    assert stats.prefill_seconds == 3.0
    assert stats.decode_seconds == 0


def test_rates_follow_their_definitions() -> None:
    stats = Stats([prefill(), turn(chain(1, 2, 3), 3), turn(chain(1, 2, 3), 1), turn(chain(), 0)])
    assert stats.decoded == 4 + 2 + 1
    assert stats.tokens_per_round == pytest.approx(7 / 3)
    assert stats.acceptance == pytest.approx(4 / 6)
    assert stats.discard_rate == pytest.approx(2 / 7)
    assert stats.verification_rate == pytest.approx(3 / 7)
    assert stats.decode_seconds == pytest.approx(4.5)
    assert (stats.forward_seconds, stats.law_seconds) == (pytest.approx(2.25), pytest.approx(0.375))


def test_the_time_identity_of_specdecpp_holds() -> None:
    stats = Stats([prefill(), turn(chain(1, 2, 3), 3), turn(chain(1, 2), 0), turn(chain(1), 1)])
    discarded = stats.drafted - stats.accepted
    assert stats.drafted == stats.decoded - stats.rounds + discarded


def test_acceptance_per_position_is_given_all_before_were_right() -> None:
    stats = Stats([turn(chain(1, 2, 3), 3), turn(chain(1, 2, 3), 1), turn(chain(1), 1), turn(chain(1, 2), 0)])
    assert stats.acceptance_per_position == (pytest.approx(3 / 4), pytest.approx(1 / 2), pytest.approx(1.0))


def test_a_tree_level_counts_once_and_only_below_the_accepted_node() -> None:
    tree = Draft((1, 2, 3, 4), (ROOT, ROOT, 0, 0), (None,) * 4)
    into_leaf = Round((2, 9), tree, Verdict((1,), (2, 9)), start=5)
    into_branch = Round((1, 9), tree, Verdict((0,), (1, 9)), start=5)
    assert Stats([into_leaf]).acceptance_per_position == (1.0,)
    assert Stats([into_branch]).acceptance_per_position == (1.0, 0.0)


def test_tokens_cut_at_an_end_of_sequence_are_not_counted() -> None:
    assert Stats([turn(chain(1, 2, 3), 3, tokens=2)]).decoded == 2


def test_merging_equals_folding_all_rounds() -> None:
    first, second = [prefill(), turn(chain(1, 2), 2)], [prefill(), turn(chain(1, 2, 3), 1)]
    merged = Stats(first)
    merged.merge(Stats(second))
    assert merged.as_dict() == Stats(first + second).as_dict()


def test_the_dictionary_names_what_is_reported() -> None:
    report = Stats([prefill(), turn(chain(1, 2), 1)]).as_dict()
    assert report["tokens"] == 3
    assert report["acceptance_per_position"] == [1.0, 0.0]
    assert set(report) >= {"tokens_per_round", "discard_rate", "verification_rate", "acceptance"}


def test_rounds_held_back_and_changes_to_and_from_them_are_counted_within_a_request() -> None:
    def rounds(*held_back: bool) -> list[Round]:
        return [prefill(), *(replace(turn(chain(), 0), held_back=held) for held in held_back)]

    stats = Stats([*rounds(False, True, True, False, True), *rounds(False, False)])
    assert (stats.held_back, stats.switches) == (3, 3)
    stats.merge(Stats(rounds(True, False)))
    assert (stats.held_back, stats.switches) == (4, 4)
    assert (stats.as_dict()["held_back"], stats.as_dict()["switches"]) == (4, 4)


def test_the_drafters_effort_and_the_rows_verified_are_counted() -> None:
    graph = Draft((1, 2, 3), (ROOT, ROOT, 0), (None,) * 3, DraftCounts(forwards=2, merged=1, saved=1))
    stats = Stats([prefill(), turn(graph, 1), turn(chain(), 0), turn(graph, 0)])
    assert (stats.draft_forwards, stats.merged, stats.rows_saved) == (4, 2, 2)
    assert stats.rows_verified == 4 + 1 + 4
    stats.add(turn(Draft(counts=DraftCounts(forwards=1, invalid=1)), 0))
    assert (stats.draft_forwards, stats.invalid_rows) == (5, 1)
    stats.merge(Stats([turn(graph, 0)]))
    told = stats.as_dict()
    assert [told[name] for name in ("draft_forwards", "merged", "rows_saved", "rows_verified")] == [7, 3, 3, 14]


def test_native_time_is_of_rounds_alone_and_adds_up() -> None:
    stats = Stats()
    stats.add(prefill(), 9.0)
    stats.add(turn(chain(1), 1), 0.5)
    other = Stats()
    other.add(turn(chain(1), 0), 0.25)
    stats.merge(other)
    assert stats.native_seconds == 0.75
    assert stats.as_dict()["native_seconds"] == 0.75


def test_forced_tokens_are_the_accepted_ones_of_rounds_that_a_grammar_forced() -> None:
    rounds = [prefill(), turn(chain(1, 2, 3), 3), replace(turn(chain(4, 5), 2), forced=True)]
    stats = Stats(rounds)
    assert (stats.drafted, stats.accepted, stats.forced) == (5, 5, 2)
    assert stats.as_dict()["forced"] == 2
    stats.merge(Stats(rounds[2:]))
    assert stats.forced == 4

import pytest

from forerun.bench.backend import Batch
from forerun.bench.load.measuring import Loads
from forerun.bench.load.rows import load_table, rows_of

from ..samples import Scripted

PEER = "peer:plain"
BACKENDS = [Scripted("plain"), Scripted("lookup"), Scripted(PEER, baseline=PEER), Scripted("peer:ngram", baseline=PEER)]


def twice(first: float, second: float, *ids: tuple[int, ...]) -> list[Batch]:
    return [Batch(ids or ((1, 2), (3, 4)), seconds) for seconds in (first, second)]


def test_rates_are_of_all_prompts_together_and_compared_with_the_same_repeat() -> None:
    loads = Loads({("plain", 2): twice(2.0, 1.0), ("lookup", 2): twice(1.0, 1.0)}, {})
    plain, lookup = rows_of(loads, BACKENDS)
    assert (plain["each"], plain["tokens_per_second"], plain["over_plain"]) == ([2.0, 4.0], 3.0, 1.0)
    assert (lookup["each"], lookup["over_plain"], lookup["tokens"]) == ([4.0, 4.0], 1.5, 4)


def test_texts_are_compared_with_plain_ones_and_with_those_of_one_at_a_time() -> None:
    other = twice(1.0, 1.0, (1, 2), (3, 5))
    loads = Loads({("plain", 1): twice(1.0, 1.0), ("plain", 8): other, ("lookup", 1): other, ("lookup", 8): other}, {})
    rows = {(row["name"], row["at_once"]): row for row in rows_of(loads, BACKENDS)}
    equal = {key: (row["equal_to_plain"], row["equal_to_alone"]) for key, row in rows.items()}
    assert equal == {("plain", 1): (2, 2), ("lookup", 1): (1, 2), ("plain", 8): (2, 1), ("lookup", 8): (2, 2)}
    assert [at_once for _, at_once in rows] == [1, 1, 8, 8]


def test_a_peer_is_compared_with_its_own_plain_decoding_or_with_none() -> None:
    loads = Loads({("plain", 1): twice(1.0, 1.0), ("peer:ngram", 1): twice(1.0, 1.0)}, {})
    row = rows_of(loads, BACKENDS)[1]
    assert row["over_plain"] is row["equal_to_plain"] is None
    loads.batches[PEER, 1] = twice(3.0, 3.0)
    rows = {one["name"]: one for one in rows_of(loads, BACKENDS)}
    assert rows["peer:ngram"]["over_plain"] == 3


def test_what_failed_in_the_middle_has_no_line() -> None:
    loads = Loads({("plain", 1): twice(1.0, 1.0), ("lookup", 1): twice(1.0, 1.0)[:1]}, {"lookup": "gone"})
    assert [row["name"] for row in rows_of(loads, BACKENDS)] == ["plain"]


@pytest.mark.parametrize(("held", "shown"), [({}, "int4"), ({"format": "Q4_0, F32"}, "Q4_0, F32")])
def test_every_line_of_the_table_names_its_format(held: dict[str, str], shown: str) -> None:
    backend = Scripted("peer:ngram", baseline=PEER)
    backend.about = held
    rows = rows_of(Loads({("peer:ngram", 8): twice(2.0, 2.0)}, {}), [backend])
    columns, lines = load_table({"loads": rows, "weights": "int4"})
    told = dict(zip(columns, lines[0], strict=True))
    assert told == {
        "method": "peer:ngram",
        "format": shown,
        "at once": "8",
        "tokens/s": "2.0",
        "x plain": "-",
        "same": "-",
        "same alone": "2/2",
    }

import json
from typing import Any

import pytest

from forerun.bench.interleaving import Measurements, measure_interleaved
from forerun.bench.report import by_category, other_engines, overall, report_of
from forerun.bench.suite import Item
from forerun.engine.prompts.questions import Question

from .samples import Scripted

KINDS = ("qa", "qa", "writing", "math")
ITEMS = [Item(str(number), kind, Question(("?",))) for number, kind in enumerate(KINDS)]
PROMPTS = [[number + 1] for number in range(len(KINDS))]


@pytest.fixture
def report() -> dict[str, Any]:
    peer = "peer:plain"
    backends = [
        Scripted("plain", 0.2),
        Scripted("lookup", 0.1),
        Scripted(peer, 0.4, peer),
        Scripted("peer:lookup", 0.2, peer),
        Scripted("other:plain", baseline="other:plain", fails_at=[3]),
    ]
    return report_of(measure_interleaved(backends, PROMPTS, 8), backends, ITEMS, PROMPTS)


def test_a_report_is_json_with_the_promised_keys(report: dict[str, Any]) -> None:
    again = json.loads(json.dumps(report))
    assert again == report
    for method in again["methods"]:
        assert {"name", "tokens_per_second", "speedup", "identical", "categories"} <= set(method)
        for scores in method["categories"].values():
            assert {"tokens_per_second", "tokens_per_second_interval", "speedup", "identical"} <= set(scores)


def test_methods_keep_their_order_and_those_that_failed_are_named_apart(report: dict[str, Any]) -> None:
    assert [method["name"] for method in report["methods"]] == ["plain", "lookup", "peer:plain", "peer:lookup"]
    assert report["failed"] == {"other:plain": "peer other:plain: out of memory"}


def test_categories_are_pooled_and_hold_their_own_prompts_only(report: dict[str, Any]) -> None:
    categories = report["methods"][0]["categories"]
    assert {name: scores["prompts"] for name, scores in categories.items()} == {"qa": 2, "mt_bench": 2}
    assert report["methods"][0]["prompts"] == 4


def test_every_method_is_compared_with_plain_decoding_of_its_own_weights(report: dict[str, Any]) -> None:
    by_name = {method["name"]: method for method in report["methods"]}
    assert by_name["lookup"]["speedup"] == 2
    assert by_name["peer:lookup"]["speedup"] == 2
    assert by_name["peer:lookup"]["total_speedup"] == 2
    assert by_name["peer:plain"]["against_plain"] == 0.5
    assert by_name["peer:lookup"]["categories"]["qa"]["speedup"] == 2


def test_a_method_says_what_it_is(report: dict[str, Any]) -> None:
    assert report["methods"][1]["drafter"] == {"name": "lookup"}
    assert report["methods"][3]["baseline"] == "peer:plain"


def test_the_times_of_every_prompt_are_kept(report: dict[str, Any]) -> None:
    assert [row["kind"] for row in report["samples"]["lookup"]] == list(KINDS)
    assert report["samples"]["lookup"][0] == {
        "id": "0",
        "kind": "qa",
        "prompt_tokens": 1,
        "decoded": 7,
        "first_seconds": 0.05,
        "decode_seconds": 0.7,
    }


def test_a_peer_whose_plain_mode_failed_has_rates_and_no_speedup() -> None:
    lookup = Scripted("peer:lookup", 0.2, "peer:plain")
    measurements = measure_interleaved([Scripted("plain"), lookup], PROMPTS, 8)
    entry = report_of(measurements, [Scripted("plain"), lookup], ITEMS, PROMPTS)["methods"][1]
    assert entry["tokens_per_second"] == 5
    assert entry["speedup"] is entry["identical"] is None


def test_the_overall_table_has_a_line_for_each_method(report: dict[str, Any]) -> None:
    columns, rows = overall(report)
    assert [row[0] for row in rows] == ["plain", "lookup", "peer:plain", "peer:lookup"]
    assert all(len(row) == len(columns) for row in rows)
    lookup = dict(zip(columns, rows[1], strict=True))
    assert lookup["tokens/s"] == "10.0 [10.0, 10.0]"
    assert lookup["x plain"] == "2.00 [2.00, 2.00]"
    assert (lookup["same"], lookup["match"], lookup["margin"]) == ("4/4", "1.000", "-")
    assert lookup["first ms"] == "50"


def test_every_line_of_the_overall_table_names_its_format(report: dict[str, Any]) -> None:
    report["methods"][2]["format"] = "Q4_0, F32"
    columns, rows = overall({**report, "weights": "int4"})
    assert columns[1] == "format"
    assert [row[1] for row in rows] == ["int4", "int4", "Q4_0, F32", "int4"]


@pytest.mark.parametrize(("largest", "shown"), [(0.0312, "0.031"), (None, "unknown")])
def test_the_table_tells_the_largest_margin_at_a_difference(largest: float | None, shown: str) -> None:
    backends = [Scripted("plain"), Scripted("lookup")]
    parted = {"lookup": {"largest_margin": largest, "beyond_rounding": 1, "differences": [{"margin": largest}]}}
    report = report_of(measure_interleaved(backends, PROMPTS, 8), backends, ITEMS, PROMPTS, parted)
    columns, rows = overall(report)
    assert [dict(zip(columns, row, strict=True))["margin"] for row in rows] == ["-", shown]


def test_the_category_table_has_a_column_for_each_category(report: dict[str, Any]) -> None:
    columns, rows = by_category(report)
    assert columns == ("method", "qa", "mt_bench")
    assert rows[1] == ("lookup", "10.0 x 2.00", "10.0 x 2.00")


def test_what_is_not_known_is_a_dash_in_the_tables() -> None:
    lookup = Scripted("peer:lookup", 0.2, "peer:plain")
    measurements = measure_interleaved([Scripted("plain"), lookup], PROMPTS, 8)
    report = report_of(measurements, [Scripted("plain"), lookup], ITEMS, PROMPTS)
    columns, rows = overall(report)
    told = dict(zip(columns, rows[1], strict=True))
    assert told["x plain"] == told["same"] == told["total x plain"] == "-"
    assert by_category(report)[1][1][1] == "5.0"


def test_answers_of_one_token_leave_dashes_in_every_table() -> None:
    plain = Scripted("plain")
    samples = [plain.answer(prompt, 1) for prompt in PROMPTS]
    report = report_of(Measurements({"plain": samples}, {}), [plain], ITEMS, PROMPTS)
    assert overall(report)[1][0][2] == "-"
    assert set(by_category(report)[1][0][1:]) == {"-"}


def test_the_table_of_other_engines_names_file_format_versions_and_settings() -> None:
    peer = {
        "name": "llama.cpp@q4_0:plain",
        "versions": {"llama-cpp-python": "0.3.36"},
        "model": "m-q4_0.gguf",
        "format": "Q4_0, F32",
        "mode": "2-grams",
        "settings": {"n_gpu_layers": 0},
    }
    columns, rows = other_engines({"methods": [{"name": "plain"}, peer]})

    assert columns == ("method", "versions", "file", "format", "settings")
    assert rows == [
        ("llama.cpp@q4_0:plain", "llama-cpp-python 0.3.36", "m-q4_0.gguf", "Q4_0, F32", "2-grams n_gpu_layers=0")
    ]

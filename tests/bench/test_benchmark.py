import json
from pathlib import Path

import pytest

import forerun
from forerun.bench.benchmark import Benchmark
from forerun.bench.methods import read_methods
from forerun.bench.peer import PeerSettings, peer_choice
from forerun.bench.suite import Item, read_suite
from forerun.errors import UnsupportedOption
from forerun.testing import save_tiny, tiny_model

ECHO = Path(__file__).parent / "echo_worker.py"
SETTINGS = PeerSettings({"hf": "/models/tiny"}, threads=1, dtype="float32")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> forerun.Engine:
    return forerun.load(save_tiny(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    path = tmp_path_factory.mktemp("suite") / "suite.jsonl"
    lines = [
        {"question_id": number, "category": category, "turns": [f"count {number} {number}", "go on"]}
        for number, category in enumerate(("writing", "qa", "math", "qa"))
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return read_suite(path)


def benchmark(engine: forerun.Engine, items: list[Item], *peers: str, settings: PeerSettings = SETTINGS) -> Benchmark:
    methods = read_methods(["lookup", "self"])
    return Benchmark(engine, methods, items, [peer_choice(peer) for peer in peers], settings, max_new_tokens=12)


def test_prompts_are_the_first_turns_in_the_chat_template(engine: forerun.Engine, items: list[Item]) -> None:
    prompts = benchmark(engine, items).asked()[1]
    assert engine.tokenizer.decode(prompts[0]) == "<user>count 0 0<end><assistant>"


def test_raw_prompts_are_the_texts_as_they_are(engine: forerun.Engine, items: list[Item]) -> None:
    raw = Benchmark(engine, read_methods([]), items, [], SETTINGS, raw=True)
    assert engine.tokenizer.decode(raw.asked()[1][1]) == "count 2 2"


def test_all_turns_are_asked_where_they_are_wanted_and_methods_agree_on_them(
    engine: forerun.Engine, items: list[Item]
) -> None:
    whole = Benchmark(engine, read_methods(["suffix"]), items[:2], [], SETTINGS, max_new_tokens=8, all_turns=True)
    report = whole.run()
    assert [row["id"] for row in report["samples"]["suffix"]] == ["0.1", "0.2", "2.1", "2.2"]
    first, later = (report["samples"]["plain"][turn]["prompt_tokens"] for turn in (0, 1))
    assert later > first
    assert report["methods"][1]["identical"]
    assert report["methods"][1]["categories"]["mt_bench"]["prompts"] == 4


def test_a_model_without_a_tokenizer_can_not_read_a_suite(items: list[Item]) -> None:
    bare = forerun.load(tiny_model("llama"))
    with pytest.raises(UnsupportedOption, match="needs a tokenizer"):
        Benchmark(bare, read_methods([]), items, [], SETTINGS).run()


def test_every_method_writes_what_plain_decoding_writes(engine: forerun.Engine, items: list[Item]) -> None:
    report = benchmark(engine, items).run()
    assert [method["name"] for method in report["methods"]] == ["plain", "lookup", "self"]
    assert all(method["identical"] for method in report["methods"])
    assert not report["failed"]


def test_a_method_that_writes_something_else_is_found(
    engine: forerun.Engine, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    from forerun.bench.backend import ForerunBackend

    answer = ForerunBackend.answer

    def wrong(self, ids, max_new_tokens):  # type: ignore[no-untyped-def]
        shift = 1 if self.name == "lookup" else 0
        return answer(self, [*ids[: len(ids) - shift]], max_new_tokens)

    monkeypatch.setattr(ForerunBackend, "answer", wrong)
    by_name = {method["name"]: method for method in benchmark(engine, items).run()["methods"]}
    assert by_name["lookup"]["identical"] is False
    assert by_name["self"]["identical"] is True
    assert by_name["self"]["match_rate"] == 1
    assert by_name["self"]["differences"] == []
    lookup = by_name["lookup"]
    assert 0 <= lookup["match_rate"] < 1
    assert len(lookup["differences"]) == lookup["prompts"] - lookup["identical_prompts"]
    assert lookup["beyond_rounding"] == len(lookup["differences"])
    assert all(one["margin"] > 0 for one in lookup["differences"])
    assert lookup["largest_margin"] == max(one["margin"] for one in lookup["differences"])


def test_peers_answer_the_same_prompts(engine: forerun.Engine, items: list[Item]) -> None:
    report = benchmark(engine, items, str(ECHO)).run()
    assert [method["name"] for method in report["methods"]][3:] == ["echo_worker:plain", "echo_worker:lookup"]
    for name in ("plain", "echo_worker:plain"):
        assert [row["id"] for row in report["samples"][name]] == ["0", "2", "1", "3"]
    assert report["methods"][3]["versions"] == {"echo": "1"}


def test_prompts_at_once_are_measured_beside_one_at_a_time(
    engine: forerun.Engine, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forerun.bench.load.measuring.REST_SECONDS", 0.0)
    alone = {"echo_worker": {"behaviour": {"lookup": "alone"}}}
    peers, settings = [peer_choice(str(ECHO))], PeerSettings({"hf": "/m"}, 1, "float32", extra=alone)
    ticks: list[bool] = []
    whole = Benchmark(engine, read_methods(["lookup"]), items, peers, settings, max_new_tokens=8, at_once=(1, 3))
    report = whole.run(lambda: ticks.append(True))
    rows = {(row["name"], row["at_once"]): row for row in report["loads"]}
    assert set(rows) == {(name, size) for name in ("plain", "lookup", "echo_worker:plain") for size in (1, 3)}
    assert all(row["equal_to_plain"] == row["equal_to_alone"] == len(items) for row in rows.values())
    assert rows["echo_worker:plain", 3]["format"] == "float32"
    assert "3 are too many" in report["not_loaded"]["echo_worker:lookup"]
    assert len(ticks) == whole.ticks == len(items) + 4


def test_more_prompts_in_flight_than_there_are_is_refused(engine: forerun.Engine, items: list[Item]) -> None:
    whole = Benchmark(engine, read_methods([]), items, [], SETTINGS, at_once=(1, 8))
    with pytest.raises(ValueError, match="8 prompts can't be in flight where there are 4; take more prompts"):
        whole.run()


def test_peers_stop_at_the_models_own_end_of_sequence(engine: forerun.Engine, items: list[Item]) -> None:
    """The echo repeats the prompt, whose template holds the end of sequence after the user's text."""
    whole = Benchmark(engine, read_methods([]), items, [peer_choice(f"{ECHO}:plain")], SETTINGS, max_new_tokens=60)
    ended = whole.run()["samples"]["echo_worker:plain"][0]
    assert ended["decoded"] + 1 == ended["prompt_tokens"] - 1


def test_a_peer_that_crashes_is_reported_and_the_others_go_on(engine: forerun.Engine, items: list[Item]) -> None:
    crashing = PeerSettings(
        {"hf": "/models/tiny"}, 1, "float32", extra={"echo_worker": {"behaviour": {"lookup": "crash"}}}
    )
    report = benchmark(engine, items, str(ECHO), settings=crashing).run()
    assert list(report["failed"]) == ["echo_worker:lookup"]
    assert "exit code 3" in report["failed"]["echo_worker:lookup"]
    assert [method["name"] for method in report["methods"]] == ["plain", "lookup", "self", "echo_worker:plain"]


def test_a_peer_that_can_not_be_opened_is_reported_with_those_that_failed_later(
    engine: forerun.Engine, items: list[Item]
) -> None:
    behaviour = {"plain": "raise", "lookup": "no package"}
    failing = PeerSettings({"hf": "/m"}, 1, "float32", extra={"echo_worker": {"behaviour": behaviour}})
    assert set(benchmark(engine, items, str(ECHO), settings=failing).run()["failed"]) == {
        "echo_worker:plain",
        "echo_worker:lookup",
    }


def test_prompts_that_do_not_fit_are_refused_before_anything_runs(engine: forerun.Engine, items: list[Item]) -> None:
    long = Benchmark(engine, read_methods([]), items, [], SETTINGS, max_new_tokens=1000)
    with pytest.raises(ValueError, match=r"take 10\d\d tokens and tiny holds 256"):
        long.run()


def test_each_opening_and_each_prompt_is_told(engine: forerun.Engine, items: list[Item]) -> None:
    opened: list[str] = []
    ticks: list[None] = []
    benchmark(engine, items, f"{ECHO}:plain").run(lambda: ticks.append(None), opened.append)
    assert opened == ["plain", "lookup", "self", "echo_worker"]
    assert len(ticks) == len(items)


def test_peers_are_closed_when_a_method_of_our_own_fails(
    engine: forerun.Engine, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    from forerun.bench.backend import ForerunBackend
    from forerun.bench.peer import Peer

    closed: list[str] = []
    close = Peer.close

    def closing(self: Peer) -> None:
        closed.append(self.name)
        close(self)

    def failing(self: ForerunBackend, ids: object, max_new_tokens: int) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(Peer, "close", closing)
    monkeypatch.setattr(ForerunBackend, "answer", failing)
    with pytest.raises(MemoryError):
        benchmark(engine, items, str(ECHO)).run()
    assert sorted(closed) == ["echo_worker:lookup", "echo_worker:plain"]

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.bench.workers import protocol as wire
from forerun.bench.workers.protocol import RequestHandler, Stopwatch, forget_peak, load_worker, peak_mb

ECHO = Path(__file__).parent / "echo_worker.py"


def opened(mode: str = "plain", eos: tuple[int, ...] = ()) -> dict[str, Any]:
    common = {"model": "m", "threads": 1, "dtype": "float32", "context": 64, "settings": {}}
    return {"do": "open", "mode": mode, "eos": list(eos), **common}


def test_a_stopwatch_keeps_the_tokens_in_order() -> None:
    watch = Stopwatch(10, ())
    assert not watch.emit([1])
    assert not watch.emit([2, 3])
    assert watch.answer()["ids"] == [1, 2, 3]


def test_what_comes_with_the_first_token_is_not_decoded() -> None:
    watch = Stopwatch(10, ())
    watch.emit([1, 2])
    watch.emit([3])
    assert watch.answer()["first_tokens"] == 2


def test_an_answer_is_cut_after_the_end_of_sequence() -> None:
    watch = Stopwatch(10, (7,))
    assert watch.emit([1, 7, 2])
    assert watch.answer()["ids"] == [1, 7]


def test_an_answer_is_cut_at_the_limit() -> None:
    watch = Stopwatch(3, ())
    assert watch.emit([1, 2, 3, 4])
    assert watch.answer()["ids"] == [1, 2, 3]


def test_nothing_is_taken_after_a_complete_answer() -> None:
    watch = Stopwatch(1, ())
    watch.emit([1])
    before = watch.answer()
    time.sleep(0.01)
    assert watch.emit([2])
    assert watch.answer() == before


def test_the_first_token_and_the_rest_have_times_of_their_own() -> None:
    watch = Stopwatch(10, ())
    time.sleep(0.03)
    watch.emit([1])
    time.sleep(0.06)
    watch.emit([2])
    time.sleep(0.2)
    answer = watch.answer()
    assert 0.03 <= answer["first_seconds"] < 0.06 + answer["decode_seconds"]
    assert 0.06 <= answer["decode_seconds"] < 0.2


def test_an_empty_piece_starts_nothing() -> None:
    watch = Stopwatch(10, ())
    assert not watch.emit([])
    assert watch.answer()["first_tokens"] == 0


def test_the_peak_memory_counts_what_was_held_and_given_back() -> None:
    forget_peak()
    before = peak_mb()
    block = bytearray(os.urandom(1) * (64 << 20))
    del block
    assert peak_mb() - before > 48


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_the_peak_memory_can_be_forgotten() -> None:
    block = bytearray(os.urandom(1) * (64 << 20))
    held = peak_mb()
    del block
    forget_peak()
    assert peak_mb() < held - 32


def test_a_worker_file_describes_itself_before_anything_is_loaded() -> None:
    told = RequestHandler(load_worker(ECHO)).reply({"do": "describe"})
    assert (told["modes"], told["model"]) == (["plain", "lookup"], "hf")
    assert told["about"]["lookup"] == "three tokens at a time"


def test_modes_may_be_bare_names() -> None:
    told = RequestHandler(SimpleNamespace(MODES=("plain",), MODEL="gguf")).reply({"do": "describe"})
    nothing = {"about": {}, "drafts": [], "refused": {}, "computes": False}
    assert told == {"modes": ["plain"], "model": "gguf", **nothing}


def test_figures_that_an_engine_measures_itself_replace_the_workers() -> None:
    def answer(ids: list[int], limit: int, emit: Any) -> dict[str, float]:
        emit(ids)
        return {"first_tokens": 1, "first_seconds": 2.0, "decode_seconds": 3.0}

    handler = RequestHandler(SimpleNamespace(MODES=("plain",), MODEL="hf", open_model=lambda given: ({}, answer)))
    handler.reply(opened())
    told = handler.reply({"do": "answer", "ids": [5, 6, 7], "max_new_tokens": 9})
    assert told.pop("peak_mb") > 0
    assert told == {"ids": [5, 6, 7], "first_tokens": 1, "first_seconds": 2.0, "decode_seconds": 3.0}


def test_an_answer_has_tokens_times_and_memory() -> None:
    handler = RequestHandler(load_worker(ECHO))
    assert handler.reply(opened("lookup")) == {"versions": {"echo": "1"}, "several": True}
    answer = handler.reply({"do": "answer", "ids": [5, 6, 7, 8], "max_new_tokens": 3})
    assert (answer["ids"], answer["first_tokens"]) == ([5, 6, 7], 3)
    assert answer["peak_mb"] > 0


def test_the_end_of_sequence_comes_from_the_opening_request() -> None:
    handler = RequestHandler(load_worker(ECHO))
    handler.reply(opened(eos=(6,)))
    assert handler.reply({"do": "answer", "ids": [5, 6, 7], "max_new_tokens": 9})["ids"] == [5, 6]


def test_an_answer_before_a_model_is_open_is_refused() -> None:
    with pytest.raises(ValueError, match="answer once a model is open"):
        RequestHandler(load_worker(ECHO)).reply({"do": "answer", "ids": [1], "max_new_tokens": 1})


def test_an_unknown_mode_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown mode 'warp'; known: plain, lookup"):
        RequestHandler(load_worker(ECHO)).reply(opened("warp"))


def test_several_prompts_are_answered_up_to_their_ends_in_the_time_of_all() -> None:
    handler = RequestHandler(load_worker(ECHO))
    handler.reply(opened(eos=(6,)))
    told = handler.reply({"do": "answer_all", "prompts": [[5, 6, 7], [1, 2, 3, 4]], "at_once": 2, "max_new_tokens": 3})
    assert told["ids"] == [[5, 6], [1, 2, 3]]
    assert told["seconds"] > 0


def test_a_worker_that_answers_one_prompt_at_a_time_says_so_and_refuses_several() -> None:
    handler = RequestHandler(load_worker(ECHO.with_name("drafting_worker.py")))
    request = {**opened(), "draft": None, "at_once": 4}
    assert handler.reply(request)["several"] is False
    with pytest.raises(ValueError, match="can't do 'answer_all' now"):
        handler.reply({"do": "answer_all", "prompts": [[5]], "at_once": 2, "max_new_tokens": 3})


def test_a_worker_tells_its_modes_that_need_a_draft_and_what_it_does_not_read() -> None:
    told = RequestHandler(load_worker(ECHO.with_name("drafting_worker.py"))).reply({"do": "describe"})
    assert (told["drafts"], told["refused"], told["computes"]) == (["draft-model"], {"F16": "it halves them"}, True)


def test_a_file_that_is_no_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no Python file"):
        load_worker(tmp_path / "worker.txt")


def talk(*requests: dict[str, Any], file: Path = ECHO) -> list[dict[str, Any]]:
    """What a worker process replies, line by line. -S: no package but the standard library is in reach."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    command = [sys.executable, "-S", wire.__file__, str(file)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_process_speaks_json_lines_without_forerun_and_despite_chatter() -> None:
    replies = talk({"do": "describe"}, opened(), {"do": "answer", "ids": [1, 2], "max_new_tokens": 2})
    described = ["about", "computes", "drafts", "model", "modes", "refused"]
    assert [sorted(reply) for reply in replies[:2]] == [described, ["several", "versions"]]
    assert replies[2]["ids"] == [1, 2]


def test_a_failing_request_is_answered_and_the_next_one_too() -> None:
    replies = talk(opened("warp"), {"do": "describe"})
    assert replies[0]["error"].startswith("ValueError: unknown mode")
    assert replies[1]["model"] == "hf"


def test_worker_files_do_not_hide_the_packages_they_are_named_after(tmp_path: Path) -> None:
    looking = tmp_path / "looking.py"
    looking.write_text("import importlib.util\nMODES = (str(importlib.util.find_spec('llama_cpp')),)\nMODEL = 'hf'\n")
    assert talk({"do": "describe"}, file=looking)[0]["modes"] == ["None"]


def test_where_the_peak_can_not_be_reset_it_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: Any, **kwargs: Any) -> str:
        raise PermissionError("not here")

    monkeypatch.setattr(Path, "write_text", refuse)
    monkeypatch.setattr(Path, "read_text", refuse)
    forget_peak()
    assert peak_mb() > 1


def test_on_a_gpu_the_peak_is_the_gpu_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[bool] = []
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        reset_peak_memory_stats=lambda: forgotten.append(True),
        max_memory_allocated=lambda: 3 * 2**20,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    forget_peak()
    assert forgotten
    assert peak_mb() == 3

import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from forerun.bench.backend import Backend, PeerFailed
from forerun.bench.peer import KNOWN, PeerSettings, open_peer, peer_choice
from forerun.bench.worker import WORKERS, Worker
from forerun.errors import UnsupportedOption

ECHO = Path(__file__).parent / "echo_worker.py"
DRAFTING = ECHO.with_name("drafting_worker.py")
SETTINGS = PeerSettings({"hf": "/models/tiny"}, threads=1, dtype="float32", context=64, eos=(9,))


def behaving(**behaviour: str) -> PeerSettings:
    extra = {"echo_worker": {"behaviour": behaviour}}
    return PeerSettings({"hf": "/models/tiny"}, threads=1, dtype="float32", context=64, eos=(9,), extra=extra)


def opened(wanted: str, settings: PeerSettings = SETTINGS) -> tuple[list[Backend], dict[str, str]]:
    failures: dict[str, str] = {}
    return list(open_peer(peer_choice(wanted), settings, failures)), failures


def close(backends: list[Backend]) -> None:
    for backend in backends:
        backend.close()


def answer(settings: PeerSettings, seconds: float = 30.0) -> Any:
    backends, failures = opened(f"{ECHO}:plain", settings)
    assert not failures
    try:
        return backends[0].answer([1, 2, 3], 3)
    finally:
        close(backends)


def test_a_known_peer_is_chosen_by_name() -> None:
    choice = peer_choice("llama.cpp")
    assert (choice.label, choice.modes) == ("llama.cpp", ())
    assert choice.file == WORKERS / "llama_cpp.py"


def test_every_known_peer_has_its_worker_file() -> None:
    assert all((WORKERS / file).is_file() for file in KNOWN.values())


def test_modes_of_a_peer_are_chosen_after_a_colon() -> None:
    assert peer_choice("transformers:lookup+early_exit").modes == ("lookup", "early_exit")


def test_a_worker_file_of_ones_own_is_a_peer() -> None:
    choice = peer_choice(f"{ECHO}:plain")
    assert (choice.label, choice.file, choice.modes) == ("echo_worker", ECHO, ("plain",))


def test_a_peer_on_a_named_model_has_a_name_of_its_own() -> None:
    choice = peer_choice("llama.cpp@q4_0:plain")
    assert (choice.label, choice.peer, choice.model, choice.modes) == (
        "llama.cpp@q4_0",
        "llama.cpp",
        "q4_0",
        ("plain",),
    )


def test_a_worker_file_may_have_an_at_sign_in_its_name(tmp_path: Path) -> None:
    file = tmp_path / "me@home.py"
    file.write_text("")
    assert peer_choice(str(file)).label == "me@home"


@pytest.mark.parametrize("wanted", ["ollama", "no_such_file.py", "", "@q4_0"])
def test_an_unknown_peer_is_refused_with_the_known_ones(wanted: str) -> None:
    with pytest.raises(UnsupportedOption, match=r"known: llama\.cpp, llama-server, openvino, transformers, vllm"):
        peer_choice(wanted)


def test_every_mode_of_a_peer_is_opened_and_compared_with_its_plain_one() -> None:
    backends, failures = opened(str(ECHO))
    close(backends)
    assert [one.name for one in backends] == ["echo_worker:plain", "echo_worker:lookup"]
    assert {one.baseline for one in backends} == {"echo_worker:plain"}
    assert not failures


def test_plain_decoding_is_opened_beside_a_chosen_mode() -> None:
    backends, _ = opened(f"{ECHO}:lookup")
    close(backends)
    assert [one.name for one in backends] == ["echo_worker:plain", "echo_worker:lookup"]


def test_a_mode_that_a_peer_has_not_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="has no mode 'warp'; its modes: plain, lookup"):
        opened(f"{ECHO}:warp")


def test_a_peer_answers_with_tokens_and_times() -> None:
    sample = answer(SETTINGS)
    assert (sample.ids, sample.first_tokens, sample.stats) == ((1, 2, 3), 1, None)
    assert sample.decode_seconds > 0
    assert sample.peak_mb > 0


def test_a_peer_is_told_the_common_conditions() -> None:
    backends, _ = opened(f"{ECHO}:plain")
    try:
        assert backends[0].answer([1, 9, 3], 3).ids == (1, 9)
        assert backends[0].about == {
            "versions": {"echo": "1"},
            "model": "tiny",
            "form": "hf",
            "format": "float32",
            "threads": 1,
            "mode": "the prompt itself",
            "settings": {},
        }
    finally:
        close(backends)


def test_a_peer_sees_the_number_of_threads_in_its_environment(tmp_path: Path) -> None:
    looking = tmp_path / "looking.py"
    looking.write_text("import os\nMODES = (os.environ['OMP_NUM_THREADS'],)\nMODEL = 'hf'\n")
    with closing(Worker("looking", sys.executable, looking, 3)) as worker:
        assert worker.ask({"do": "describe"}, 30)["modes"] == ["3"]


def test_a_peer_that_crashes_says_how_and_what_it_said_last() -> None:
    with pytest.raises(PeerFailed, match=r"echo_worker:plain ended \(exit code 3; it said: out of luck\)"):
        answer(behaving(plain="crash"))


def test_a_peer_that_is_killed_says_by_which_signal() -> None:
    with pytest.raises(PeerFailed, match="signal SIGKILL"):
        answer(behaving(plain="killed"))


def test_a_peer_that_raises_says_why() -> None:
    with pytest.raises(PeerFailed, match="echo_worker:plain: RuntimeError: no memory left"):
        answer(behaving(plain="raise"))


def test_a_peer_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.bench.peer.ANSWER_SECONDS", 0.5)
    with pytest.raises(PeerFailed, match=r"gave no answer within 0 s|gave no answer within 1 s"):
        answer(behaving(plain="silent"))


def test_a_mode_that_can_not_be_opened_is_noted_and_the_other_is_opened() -> None:
    backends, failures = opened(str(ECHO), behaving(lookup="no package"))
    close(backends)
    assert [one.name for one in backends] == ["echo_worker:plain"]
    assert "No module named 'a_package_that_nobody_has'" in failures["echo_worker:lookup"]


def test_a_python_that_is_not_there_is_noted() -> None:
    settings = PeerSettings({}, 1, "float32", pythons={"echo_worker": "/no/python"})
    backends, failures = opened(str(ECHO), settings)
    assert not backends
    assert failures["echo_worker"].startswith("peer echo_worker can't be started with /no/python")


def test_a_worker_file_that_fails_on_import_is_noted(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit('not today')\n")
    backends, failures = opened(str(tmp_path / "broken.py"))
    assert not backends
    assert "exit code 1; it said: not today" in failures["broken"]


def test_a_peer_without_a_model_in_its_form_says_how_to_name_one() -> None:
    backends, failures = opened(f"{ECHO}:plain", PeerSettings({"gguf": "m.gguf"}, 1, "float32"))
    assert not backends
    assert "--peer-model hf=PATH" in failures["echo_worker:plain"]


def test_a_peer_reads_the_named_model_and_has_its_own_settings() -> None:
    extra = {"echo_worker": {"behaviour": {}}}
    settings = PeerSettings({"small": "/models/small", "hf": "/m"}, threads=1, dtype="float32", extra=extra)
    backends, failures = opened(f"{ECHO}@small:lookup", settings)
    close(backends)
    assert not failures
    assert [one.name for one in backends] == ["echo_worker@small:plain", "echo_worker@small:lookup"]
    assert {one.baseline for one in backends} == {"echo_worker@small:plain"}
    assert backends[0].about["model"] == "small"
    assert backends[0].about["settings"] == {"behaviour": {}}


def test_a_model_that_nobody_named_is_asked_for() -> None:
    backends, failures = opened(f"{ECHO}@q4_0:plain")
    assert not backends
    assert "name it with --peer-model q4_0=PATH" in failures["echo_worker@q4_0:plain"]


def test_a_peer_answers_several_prompts_at_once() -> None:
    backends, _ = opened(f"{ECHO}:plain")
    try:
        batch = backends[0].answer_all([[1, 2], [3, 9, 4]], 2, 3)
    finally:
        close(backends)
    assert backends[0].several
    assert batch.ids == ((1, 2, 77), (3, 9))
    assert (batch.tokens, batch.seconds > 0) == (5, True)


def gguf_file(place: Path, kind: str) -> Path:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(place, "llama")
    writer.add_tensor("w", np.zeros((2, 4), dtype=np.float16 if kind == "F16" else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return place


def test_a_peer_gets_the_draft_model_in_its_own_format_and_tells_both_formats(tmp_path: Path) -> None:
    model, draft = (gguf_file(tmp_path / f"{name}.gguf", "F32") for name in ("model", "draft"))
    settings = PeerSettings({"gguf": str(model)}, 1, "bfloat16", drafts={"gguf": str(draft)}, at_once=4)
    backends, failures = opened(str(DRAFTING), settings)
    close(backends)
    assert not failures
    plain, drafting = (one.about for one in backends)
    assert (plain["versions"]["draft"], drafting["versions"]["draft"]) == ("None", str(draft))
    assert drafting["versions"]["at_once"] == "4"
    assert drafting["format"] == "F32, computed in bfloat16"
    assert drafting["draft"] == "draft.gguf (F32)"
    assert "draft" not in plain
    assert not backends[0].several
    with pytest.raises(PeerFailed, match="drafting_worker:plain answers one prompt at a time"):
        backends[0].answer_all([[1]], 1, 1)


def test_a_mode_that_needs_a_draft_says_how_to_get_one(tmp_path: Path) -> None:
    settings = PeerSettings({"gguf": str(gguf_file(tmp_path / "m.gguf", "F32"))}, 1, "bfloat16")
    backends, failures = opened(f"{DRAFTING}:draft-model", settings)
    close(backends)
    assert [one.name for one in backends] == ["drafting_worker:plain"]
    assert failures["drafting_worker:draft-model"].endswith(
        "write one with forerun export draft MODEL --draft DRAFT -o NAME.gguf and name it with --peer-draft gguf=NAME.gguf"
    )


def test_a_file_that_a_peer_reads_wrongly_is_not_measured(tmp_path: Path) -> None:
    settings = PeerSettings({"gguf": str(gguf_file(tmp_path / "m.gguf", "F16"))}, 1, "bfloat16")
    backends, failures = opened(f"{DRAFTING}:plain", settings)
    assert not backends
    assert "doesn't read F16 (it halves them); make an F16 file" in failures["drafting_worker:plain"]


def test_a_file_that_can_not_be_read_is_a_failure_of_its_peer(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_text("no model")
    backends, failures = opened(f"{DRAFTING}:plain", PeerSettings({"gguf": str(tmp_path / "m.gguf")}, 1, "bfloat16"))
    assert not backends
    assert "m.gguf can't be read as a GGUF file" in failures["drafting_worker:plain"]


def test_what_is_no_json_is_a_failure_and_not_a_crash(tmp_path: Path) -> None:
    loud = tmp_path / "loud.py"
    loud.write_text("import os\nos.write(3, b'hello\\n')\nos.write(4, b'hello\\n')\nMODES = ()\nMODEL = 'hf'\n")
    with closing(Worker("loud", sys.executable, loud, 1)) as worker, pytest.raises(PeerFailed, match="no JSON: 'hello"):
        worker.ask({"do": "describe"}, 30)


def test_a_closed_worker_leaves_no_process_behind(tmp_path: Path) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "MODES = (str(child.pid),)\nMODEL = 'hf'\n"
    )
    with closing(Worker("parent", sys.executable, parent, 1)) as worker:
        child = int(worker.ask({"do": "describe"}, 30)["modes"][0])
        os.kill(child, 0)
    deadline = time.monotonic() + 10
    while _running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _running(child)


def _running(process: int) -> bool:
    """Whether the process runs; one that is dead and not yet collected does not."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_a_worker_that_ended_can_be_closed_and_asked_again() -> None:
    backends, _ = opened(f"{ECHO}:plain", behaving(plain="crash"))
    for _ in range(2):
        with pytest.raises(PeerFailed, match="ended"):
            backends[0].answer([1], 1)
    close(backends)


def test_a_peer_may_log_any_bytes(tmp_path: Path) -> None:
    loud = tmp_path / "loud.py"
    noise = "import os\nfor _ in range(200):\n    os.write(2, b'\\xff\\xe9 caf\\xe9 ' * 200 + b'\\n')\n"
    loud.write_text(noise + "MODES, MODEL = ('plain',), 'hf'\n")
    with closing(Worker("loud", sys.executable, loud, 1)) as worker:
        assert worker.ask({"do": "describe"}, 30)["modes"] == ["plain"]

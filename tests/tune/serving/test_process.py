from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from forerun.errors import UnsupportedOption
from forerun.tune.serving.asking import Address, EngineFailed, alive
from forerun.tune.serving.process import KEEPER, Server, last_words, port_for

from .stand_in import stand_in


def server(folder: Path, *more: str, name: str = "it") -> Server:
    port = port_for(0)
    return Server(name, [str(stand_in(folder)), "--port", str(port), *more], {}, port, 20.0)


def test_a_server_is_waited_for_and_ended(tmp_path: Path) -> None:
    with closing(server(tmp_path)) as opened:
        assert alive(opened.url)
        assert Address(opened.url, {}).model == "stood-in"

    assert not alive(opened.url)


def test_one_that_ends_before_it_is_ready_is_a_sentence_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"it ended before it was ready \(exit code 1; it said: .*model is broken\)"):
        server(tmp_path, "broken")


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="it was not ready within 0 s"):
        Server("it", [sys.executable, "-c", "import time; time.sleep(60)"], {}, port_for(0), 0.01)


def test_a_server_ends_though_nobody_asks_it_to(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    child = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    keeper = subprocess.Popen([sys.executable, str(KEEPER), "1", sys.executable, "-c", child], stdin=subprocess.PIPE)
    while not file.exists() or not file.read_text():
        time.sleep(0.01)
    assert keeper.stdin is not None
    keeper.stdin.close()  # as when the run that launched it is killed
    keeper.wait(20)

    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UnsupportedOption, match=rf"port {port} can't be had \(.*\); end what listens there"):
            port_for(port)
    assert port_for(port) == port


def test_the_error_of_a_log_is_told_and_not_what_stands_for_it() -> None:
    root, general = (
        "(Engine) ERROR ValueError: no memory",
        "RuntimeError: Engine core initialization failed. See root cause",
    )

    assert last_words(f"INFO begun\n{root}\n{general}\n") == "; it said: ValueError: no memory"
    assert last_words("one\ntwo\n\n") == "; it said: two"
    assert last_words("") == ""

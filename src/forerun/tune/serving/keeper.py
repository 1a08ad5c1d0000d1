"""Runs a program until its own input ends, and then ends the program and all that it started.

    python keeper.py SECONDS COMMAND...

So a server ends with the run that launched it, however that ended. It is asked first, and killed after SECONDS.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(seconds: float, command: list[str]) -> int:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def end() -> None:
        while os.read(0, 1024):
            pass
        _signal(process, signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        _signal(process, signal.SIGKILL)

    reader = threading.Thread(target=end, daemon=True)
    reader.start()
    code = process.wait()
    # what it started must not outlive it
    _signal(process, signal.SIGKILL)
    return code if code >= 0 else 128 - code


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    # at once, for the thread still reads
    os._exit(main(float(sys.argv[1]), sys.argv[2:]))

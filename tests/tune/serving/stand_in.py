"""A program that speaks as llama-server and vLLM do, in milliseconds; what goes wrong is said by the name of its model."""

from __future__ import annotations

import sys
from pathlib import Path

SERVER = """#!{python}
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

line = " ".join(sys.argv)
if "--help" in sys.argv:
    sys.exit(print("--spec-draft-n-max N" if {new} else "--draft-max N"))
if "--version" in sys.argv:
    sys.exit(print("version: 1 (abc)", file=sys.stderr))
if "broken" in line:
    print("some log", file=sys.stderr)
    sys.exit("ValueError: this model is broken")
if "foreign" in line and "--spec-type" in line:
    print("E srv: failed to initialize speculative decoding context: another vocab", file=sys.stderr, flush=True)
drafts = "--spec-type" in line
answers = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/metrics":
            return self.reply({{}}, 404)
        self.reply({{"data": [{{"id": "stood-in"}}]}})

    def do_POST(self):
        global answers
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers += 1
        if "mortal" in line and drafts and answers > 3:
            print("RuntimeError: out of memory", file=sys.stderr, flush=True)
            os._exit(7)
        if "fleeting" in line and not drafts and answers > 4:
            os._exit(7)
        if "refusing" in line:
            return self.reply({{"error": "no chat template"}}, 400)
        time.sleep(0.001 if drafts else 0.02)
        tokens = asked["max_tokens"]
        text = json.dumps(asked.get("messages", asked.get("prompt")))
        choice = {{"message": {{"content": text}}}} if "messages" in asked else {{"text": text}}
        timings = {{"draft_n": 4, "draft_n_accepted": 3}} if drafts else {{}}
        self.reply({{"choices": [choice], "usage": {{"completion_tokens": tokens}}, "timings": timings}})

    def reply(self, told, status=200):
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given):
        pass


port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def stand_in(folder: Path, name: str = "llama-server", new: bool = True) -> Path:
    """An executable in the folder. new: whether it has the flags of today."""
    file = folder / name
    file.write_text(SERVER.format(python=sys.executable, new=new))
    file.chmod(0o755)
    return file

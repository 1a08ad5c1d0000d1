"""A peer that answers with its prompt, one or several. settings["behaviour"] makes it fail in one of several ways."""

import os
import sys
import time

MODES = {"plain": "the prompt itself", "lookup": "three tokens at a time"}
MODEL = "hf"


def open_model(options):
    behaviour = options["settings"].get("behaviour", {}).get(options["mode"])
    print("a library's chatter on standard output")
    if behaviour == "no package":
        import a_package_that_nobody_has  # noqa: F401
    step = 1 if options["mode"] == "plain" else 3

    def answer(ids, max_new_tokens, emit):
        if behaviour == "crash":
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(3)
        if behaviour == "killed":
            os.kill(os.getpid(), 9)
        if behaviour == "raise":
            raise RuntimeError("no memory left")
        if behaviour == "silent":
            time.sleep(60)
        for start in range(0, len(ids), step):
            print("more chatter")
            if emit(ids[start : start + step]):
                break

    def answer_all(prompts, at_once, max_new_tokens):
        if behaviour == "alone":
            raise RuntimeError(f"{at_once} are too many")
        return [[*ids, 77] for ids in prompts]

    return {"echo": str(options["threads"])}, answer, answer_all

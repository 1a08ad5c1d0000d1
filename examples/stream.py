"""An answer as it is written, with drafted tokens in brackets: python examples/stream.py [MODEL]"""

import sys

import forerun

engine = forerun.load(sys.argv[1] if len(sys.argv) > 1 else "smollm2", drafter="lookup")
question = "Count from one to twenty in words, and then count again."
for piece in engine.stream([{"role": "user", "content": question}], max_new_tokens=60, stop=["\n\n"]):
    print(f"[{piece.text}]" if piece.drafted else piece.text, end="", flush=True)
    if piece.result is not None:
        print(f"\n{piece.result.stats.accepted} of {piece.result.stats.drafted} drafted tokens were right")

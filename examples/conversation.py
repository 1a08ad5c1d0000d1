"""A conversation: what one turn computed, the next one does not: python examples/conversation.py [MODEL]"""

import sys

import forerun

engine = forerun.load(sys.argv[1] if len(sys.argv) > 1 else "smollm2", drafter="lookup")
messages: list[dict[str, str]] = []
for said in (
    "Name three animals that live in the sea, and say a word about each.",
    "And which of them is the largest?",
):
    messages.append({"role": "user", "content": said})
    result = engine.generate(messages, max_new_tokens=40)
    messages.append({"role": "assistant", "content": result.text or ""})
    seconds = result.stats.prefill_seconds
    print(f"> {said}\n{result.text}\n({result.prompt_tokens} tokens before it, read in {seconds:.2f} s)\n")

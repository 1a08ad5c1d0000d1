"""One answer, drafted by looking back into the prompt: python examples/generate.py [MODEL]"""

import sys

import forerun

engine = forerun.load(sys.argv[1] if len(sys.argv) > 1 else "smollm2", drafter="lookup")
question = "Say this again: the harbour opened in 1904, and the fishermen paid for its stones with their own catch."
result = engine.generate([{"role": "user", "content": question}], max_new_tokens=40)
print(result.text)
print(f"{result.stats.tokens_per_round:.2f} tokens per round, ended by {result.finish_reason}")

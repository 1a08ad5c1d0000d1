"""Seeds: the same seed gives the same text, with a chosen draft or without one: python examples/sampling.py [MODEL]"""

import sys

import forerun

engine = forerun.load(sys.argv[1] if len(sys.argv) > 1 else "smollm2", drafter="lookup", dtype="float32")
question = [{"role": "user", "content": "Tell me something about the moon."}]
for seed in (1, 2):
    options: forerun.RequestOptions = {
        "max_new_tokens": 24,
        "temperature": 0.8,
        "top_p": 0.95,
        "logprobs": 2,
        "seed": seed,
    }
    drafted = engine.generate(question, **options)
    plainly: forerun.RequestOptions = {**options, "speculate": False}
    plain = engine.generate(question, **plainly)
    print(f"seed {seed}: {drafted.text!r}, as without drafts: {drafted.ids == plain.ids}")
assert drafted.logprobs is not None
first = drafted.logprobs[0]
print(f"its first token had log-probability {first.logprob:.2f}; the best two: {first.top}")

"""Several methods on one loaded model, each timed against plain decoding: python examples/compare_drafters.py [MODEL]"""

import sys

import forerun
from forerun.bench.compare import compare
from forerun.engine.prompts.questions import Question

plain = forerun.load(sys.argv[1] if len(sys.argv) > 1 else "smollm2", dtype="float32")
half = plain.runner.num_layers // 2
methods = {
    "lookup": plain.using("lookup", policy_options={"k": 7}),
    "early exit": plain.using("self", drafter_options={"exit_layer": half}, policy_options={"k": 3}),
    "own layers": plain.using("self", "threshold", drafter_options={"skip_attention": (half,)}),
}
questions = [Question(("Write the alphabet twice, with a blank after each letter.",))]
for name, found in zip(
    methods, compare(list(methods.values()), questions, {"max_new_tokens": 24}, repeats=2), strict=True
):
    equal = "equal" if found.identical else "DIFFERENT"
    rate = found.speculative.stats.tokens_per_round
    print(f"{name:12} {found.speedup:5.2f} times as fast, {rate:.2f} tokens per round, output {equal}")

"""Many prompts at once, each accepting its own number of tokens: python examples/batch.py [MODEL]"""

import sys
from time import perf_counter

import forerun

engine = forerun.load(sys.argv[1] if len(sys.argv) > 1 else "smollm2")
animals = ("cat", "whale", "bee", "horse", "owl", "frog", "ant", "seal")
prompts = [[{"role": "user", "content": f"Say one sentence about the {animal}."}] for animal in animals]
for batch in (1, len(prompts)):
    engine.forget()
    begun = perf_counter()
    results = engine.generate(prompts, max_batch=batch, max_new_tokens=16)
    rate = sum(len(result.ids) for result in results) / (perf_counter() - begun)
    print(f"{batch} at once: {rate:.1f} tokens/s")
for animal, result in zip(animals, results, strict=True):
    print(f"{animal}: {result.text}")

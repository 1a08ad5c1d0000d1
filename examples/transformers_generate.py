"""Speculation inside transformers' own generate: python examples/transformers_generate.py [MODEL_DIRECTORY]"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

import forerun
from forerun.models.files.locate import locate
from forerun.models.gguf.convert import converted

directory = sys.argv[1] if len(sys.argv) > 1 else converted(locate("smollm2"), torch.bfloat16)
tokenizer = AutoTokenizer.from_pretrained(directory)
model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
inputs = tokenizer("def add(a, b):\n    return a + b\n\n\ndef add_all(a, b, c):\n    return", return_tensors="pt")
hook = forerun.custom_generate(drafter="lookup", policy="heuristic")
options = {"max_new_tokens": 48, "do_sample": False, "streamer": TextStreamer(tokenizer)}
model.generate(**inputs, **options, custom_generate=hook)

"""A GGUF file in another type, by llama.cpp's own quantiser: what its kernels are fastest on.

    .peers/llamacpp/bin/python benchmarks/quantise.py smollm2.gguf q4_0 .peers/models/smollm2-q4_0.gguf

Runs in a Python with llama-cpp-python. From a file of 4 bits the weights are rounded a second time, so texts differ.
A file that is there is kept.
"""

import ctypes
import sys
from pathlib import Path

import llama_cpp

TYPES = {
    "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
    "f16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
}


def main(source: str, wanted: str, target: str) -> None:
    file = Path(target)
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype, settings.allow_requantize = TYPES[wanted], True
    if llama_cpp.llama_model_quantize(source.encode(), str(partial).encode(), ctypes.byref(settings)):
        raise SystemExit(f"llama.cpp could not make {target} of {source}; its log says why")
    partial.rename(file)


if __name__ == "__main__":
    main(*sys.argv[1:])

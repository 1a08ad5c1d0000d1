"""OpenVINO GenAI on a CPU, which reads a GGUF file by itself: plain, and with its prompt lookup (3-grams, 3 tokens).

It computes in dtype: in float32 with keys and values of 32 bits, else with its own default, which is 8 bits.
settings["properties"] are further ones of the pipeline, settings["generation"] of its generation config.
"""

from __future__ import annotations

from typing import Any

MODES = {"plain": "", "lookup": "3-grams, 3 tokens"}
MODEL = "gguf"
COMPUTES = True
ROUNDED = "OpenVINO rounds the smallest value of such a block to a whole step, and writes other texts"
REFUSED = {"Q4_1": ROUNDED, "Q4_K": ROUNDED}
HINTS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def properties(options: dict[str, Any]) -> dict[str, Any]:
    """What the pipeline is opened with."""
    found: dict[str, Any] = {"INFERENCE_NUM_THREADS": options["threads"]}
    if options["dtype"] in HINTS:
        found["INFERENCE_PRECISION_HINT"] = HINTS[options["dtype"]]
    if options["dtype"] == "float32":
        found["KV_CACHE_PRECISION"] = "f32"
    if options["mode"] == "lookup":
        found["prompt_lookup"] = True
    return {**found, **options["settings"].get("properties", {})}


def open_model(options: dict[str, Any]) -> tuple[dict[str, str], Any]:
    try:
        import numpy
        import openvino
        import openvino_genai
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f"no OpenVINO GenAI here ({error}); make peers sets it up, --peer-python openvino=PATH says which Python has it"
        ) from error

    pipeline = openvino_genai.LLMPipeline(options["model"], "CPU", **properties(options))
    config = openvino_genai.GenerationConfig()
    lookup = {"num_assistant_tokens": 3, "max_ngram_size": 3} if options["mode"] == "lookup" else {}
    eos = {"stop_token_ids": set(options["eos"]), **({"eos_token_id": options["eos"][0]} if options["eos"] else {})}
    common = {"do_sample": False, "apply_chat_template": False, **eos}
    for name, value in {**common, **lookup, **options["settings"].get("generation", {})}.items():
        setattr(config, name, value)

    class Passing(openvino_genai.StreamerBase):  # type: ignore[misc]
        """Hands tokens on as they come."""

        def __init__(self, emit: Any) -> None:
            super().__init__()
            self._emit = emit

        def write(self, tokens: Any) -> Any:
            complete = self._emit([tokens] if isinstance(tokens, int) else list(tokens))
            return openvino_genai.StreamingStatus.STOP if complete else openvino_genai.StreamingStatus.RUNNING

        def end(self) -> None:
            pass

    def answer(ids: list[int], max_new_tokens: int, emit: Any) -> None:
        config.max_new_tokens = max_new_tokens
        rows = numpy.array([ids], dtype=numpy.int64)
        pipeline.generate(
            openvino_genai.TokenizedInputs(openvino.Tensor(rows), openvino.Tensor(numpy.ones_like(rows))),
            config,
            Passing(emit),
        )

    return {"openvino-genai": openvino_genai.__version__}, answer

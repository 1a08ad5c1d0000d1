"""llama.cpp through llama-cpp-python: plain decoding, and its prompt lookup (2-grams, 10 tokens: the package's defaults)."""

from __future__ import annotations

from typing import Any

MODES = {"plain": "", "lookup": "2-grams, 10 tokens"}
MODEL = "gguf"


def open_model(options: dict[str, Any]) -> tuple[dict[str, str], Any]:
    try:
        import llama_cpp
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f"no llama-cpp-python here ({error}); make peers builds it, --peer-python llama.cpp=PATH says which has it"
        ) from error

    settings = options["settings"]
    drafting = options["mode"] == "lookup"
    llm = llama_cpp.Llama(
        options["model"],
        n_ctx=options["context"],
        n_threads=options["threads"],
        n_threads_batch=options["threads"],
        n_gpu_layers=settings.get("n_gpu_layers", 0),
        draft_model=LlamaPromptLookupDecoding() if drafting else None,
        # with drafts it writes the logits of whole prompts into a buffer that it makes long enough only if told so
        logits_all=drafting,
        verbose=False,
    )

    def answer(ids: list[int], max_new_tokens: int, emit: Any) -> None:
        # without this, what an earlier prompt has in common with this one would be kept and cost nothing
        llm.reset()
        tokens = llm.generate(ids, temp=0.0, top_k=1, top_p=1.0, min_p=0.0, repeat_penalty=1.0)
        for token in tokens:
            if emit([token]):
                break
        tokens.close()

    return {"llama-cpp-python": llama_cpp.__version__}, answer

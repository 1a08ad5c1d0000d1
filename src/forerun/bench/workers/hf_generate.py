"""transformers' own generate: plain, with prompt lookup (10 tokens), with early exit at half of the layers, an assistant.

settings["generate"] are further arguments of generate; settings["assistant"] names an assistant model for another mode, and
settings["assistant_generation"] sets an assistant's generation config.
"""

from __future__ import annotations

from typing import Any

MODES = {
    "plain": "",
    "lookup": "10 tokens",
    "early_exit": "after half of the layers",
    "assistant": "up to 3 tokens, constant, while its probability is .4",
}
MODEL = "hf"
DRAFTS = ("assistant",)
ASSISTING = {
    "num_assistant_tokens": 3,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.4,
}


class EmitStreamer:
    """A streamer that passes on what generate emits, all but the prompt, which it puts first."""

    def __init__(self, emit: Any) -> None:
        self._emit = emit
        self._prompt_seen = False

    def put(self, tokens: Any) -> None:
        if self._prompt_seen:
            self._emit(tokens.flatten().tolist())
        self._prompt_seen = True

    def end(self) -> None:
        pass


def open_model(options: dict[str, Any]) -> tuple[dict[str, str], Any]:
    import torch
    import transformers

    torch.set_num_threads(options["threads"])
    transformers.utils.logging.set_verbosity_error()
    device = options["settings"].get("device", "cpu")
    dtype = "auto" if options["dtype"] == "auto" else getattr(torch, options["dtype"])
    model = transformers.AutoModelForCausalLM.from_pretrained(options["model"], dtype=dtype).to(device).eval()
    if not options.get("generation_config", True):
        model.generation_config = transformers.GenerationConfig()
    speculation = {
        "plain": {},
        "lookup": {"prompt_lookup_num_tokens": options["settings"].get("prompt_lookup_num_tokens", 10)},
        "early_exit": {
            "assistant_early_exit": options["settings"].get("exit_layer", model.config.num_hidden_layers // 2)
        },
        "assistant": {},
    }[options["mode"]]
    speculation = {**speculation, **options["settings"].get("generate", {})}
    draft = options["draft"] if options["mode"] in DRAFTS else options["settings"].get("assistant")
    if draft is not None:
        assistant = transformers.AutoModelForCausalLM.from_pretrained(draft, dtype=dtype)
        speculation["assistant_model"] = assistant.to(device).eval()
        own = ASSISTING if options["mode"] in DRAFTS else {}
        for name, value in {**own, **options["settings"].get("assistant_generation", {})}.items():
            setattr(assistant.generation_config, name, value)

    def answer(ids: list[int], max_new_tokens: int, emit: Any) -> None:
        with torch.inference_mode():
            model.generate(
                torch.tensor([ids], device=device),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long, device=device),
                max_new_tokens=max_new_tokens,
                do_sample=False,
                eos_token_id=options["eos"] or None,
                pad_token_id=(options["eos"] or [0])[0],
                streamer=EmitStreamer(emit),
                **speculation,
            )

    return {"transformers": transformers.__version__, "torch": torch.__version__}, answer

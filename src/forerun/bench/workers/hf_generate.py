"""transformers' own generate: plain, with prompt lookup (10 tokens), with early exit at half of the layers.

settings["generate"] are further arguments of generate; settings["assistant"] names an assistant model, whose generation
config settings["assistant_generation"] sets.
"""

from __future__ import annotations

from typing import Any

MODES = {"plain": "", "lookup": "10 tokens", "early_exit": "after half of the layers"}
MODEL = "hf"


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
    }[options["mode"]]
    speculation = {**speculation, **options["settings"].get("generate", {})}
    if "assistant" in options["settings"]:
        assistant = transformers.AutoModelForCausalLM.from_pretrained(options["settings"]["assistant"], dtype=dtype)
        speculation["assistant_model"] = assistant.to(device).eval()
        for name, value in options["settings"].get("assistant_generation", {}).items():
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

"""The tokenizer of a GGUF file: what transformers leaves out of it is added, what has no place in it is refused by name."""

from __future__ import annotations

from typing import Any

from tokenizers import decoders, normalizers, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from .header import Header

PREFIX = "tokenizer.ggml."
# ways to split a text before merging: as GPT-2, or every digit by itself and then as GPT-2
AS_GPT2 = frozenset({"default", "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "mpt", "olmo", "jais", "trillion"})
SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
# texts of these begin with the beginning-of-text token, and whole words go before merges
BEGUN = frozenset({"llama3", "llama-v3", "llama-bpe", "tekken", "pixtral", "falcon3", "midm-2.0"})
# as text, the ends of a turn in files from before there was a key for them
TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>")

READ_BY_TRANSFORMERS = frozenset(
    {"model", "pre", "tokens", "scores", "merges", "token_type", "bos_token_id", "eos_token_id", "unknown_token_id"}
    | {"padding_token_id", "add_bos_token", "add_eos_token"}
)
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id", "eos_token_ids")
# ids that nothing asks for when text is written from left to right
UNUSED_IDS = frozenset(
    {"seperator_token_id", "separator_token_id", "mask_token_id", "cls_token_id", "token_type_count"}
    | {f"fim_{name}_token_id" for name in ("pre", "suf", "mid", "pad", "rep", "sep")}
    | {f"{name}_token_id" for name in ("prefix", "suffix", "middle")}
)
NEUTRAL = {"add_sep_token": False, "remove_extra_whitespaces": False}


def settle_tokenizer(header: Header, tokenizer: Any) -> None:
    """Change tokenizer into what the file says. Raises UnsupportedModel on a key that has no place in it."""
    keys = {name.removeprefix(PREFIX): value for name, value in header.keys.items() if name.startswith(PREFIX)}
    known = READ_BY_TRANSFORMERS | UNUSED_IDS | {*ENDS, "add_space_prefix", "precompiled_charsmap"}
    for key, value in keys.items():
        if key not in known and NEUTRAL.get(key) is not value:
            raise header.refuse(
                PREFIX + key, "forerun can't apply this to a tokenizer, and it changes the tokens of a text"
            )
    backend, kind, way = tokenizer.backend_tokenizer, keys.get("model"), keys.get("pre")
    if kind == "gpt2":
        if way in SINGLE_DIGITS:
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
            )
        elif way is not None and way not in GGUF_PRE_TOKENIZER_SPLITS and way not in AS_GPT2:
            ways = ", ".join(sorted({*GGUF_PRE_TOKENIZER_SPLITS, *AS_GPT2, *SINGLE_DIGITS}))
            raise header.refuse(f"{PREFIX}pre", f"the known ways to split a text are {ways}")
        if way in BEGUN:
            backend.model.ignore_merges = True
            if "add_bos_token" not in keys and tokenizer.bos_token is not None:
                tokenizer.add_bos_token = True
    if kind == "llama" and keys.get("add_space_prefix") is False:
        _put_no_space_first(backend)


def _put_no_space_first(backend: Any) -> None:
    if isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace):
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never", split=False)
    else:
        backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])


def ends_of(header: Header) -> list[int]:
    """Every id that ends a text: by key, or a control token that ends a turn in the file's own chat template."""
    found: set[int] = set()
    for key in ENDS:
        ids = header.keys.get(PREFIX + key)
        found |= set(ids) if isinstance(ids, list) else set() if ids is None else {ids}
    if f"{PREFIX}eot_token_id" not in header.keys:
        template = str(header.keys.get("tokenizer.chat_template", ""))
        tokens, types = (header.keys.get(PREFIX + name, ()) for name in ("tokens", "token_type"))
        controls = {token: index for index, (token, kind) in enumerate(zip(tokens, types, strict=False)) if kind == 3}
        found |= {controls[token] for token in TURN_ENDS if token in controls and token in template}
    return sorted(int(token) for token in found)

"""Tokenizers with chat templates like those of well-known families: one token a byte, and the families' own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class Family:
    """end is what ends the assistant's turn, eos the tokenizer's end of sequence."""

    template: str
    eos: str
    end: str
    others: tuple[str, ...] = ()
    bos: str = ""


GEMMA = Family(
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim "
    "+ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    eos="<eos>",
    end="<end_of_turn>",
    others=("<start_of_turn>",),
    bos="<bos>",
)
LLAMA3 = Family(
    "{% for m in messages %}{{ (bos_token if loop.first else '') + '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' "
    "+ m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    eos="<|end_of_text|>",
    end="<|eot_id|>",
    others=("<|start_header_id|>", "<|end_header_id|>"),
    bos="<|begin_of_text|>",
)
CHATML = Family(
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    eos="<|endoftext|>",
    end="<|im_end|>",
    others=("<|im_start|>",),
)
# as Qwen3 does: thoughts stay in the last answer alone, and an answer without any is shown with empty ones
QWEN3 = Family(
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% set thought = m.content.split('</think>')[0].split('<think>')[-1] if '</think>' in m.content else '' %}"
    "{% if loop.last %}{{ '<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}{% endif %}"
    "{{ m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    eos="<|endoftext|>",
    end="<|im_end|>",
    others=("<|im_start|>",),
)
# as DeepSeek-R1 does: an answer begins with a thought, and no thought is shown
R1 = Family(
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<User>' + m.content }}{% else %}"
    "{{ '<Assistant>' + m.content.split('</think>')[-1] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<Assistant><think>\n' }}{% endif %}",
    eos="<eos>",
    end="<eos>",
    others=("<User>", "<Assistant>"),
    bos="<bos>",
)
LLAMA2 = Family(
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content | trim + ' [/INST]' }}{% else %}"
    "{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}",
    eos="</s>",
    end="</s>",
    bos="<s>",
)
# writes no beginning of an answer when it is asked to, and no token at its end
BARE = Family("{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}", eos="</s>", end="</s>")


def tokenizer_of(family: Family) -> Any:
    """It puts its beginning of sequence before every text, if it has one."""
    named = [token for token in (family.bos, family.eos) if token]
    special = list(dict.fromkeys([*named, family.end, *family.others]))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, *special])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    if family.bos:
        bos = (family.bos, vocabulary[family.bos])
        inner.post_processor = processors.TemplateProcessing(single=f"{family.bos} $A", special_tokens=[bos])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token=family.bos or None,
        eos_token=family.eos,
        chat_template=family.template,
        clean_up_tokenization_spaces=False,
    )


def chat(*texts: str, system: str = "") -> list[dict[str, Any]]:
    """User and assistant in turn."""
    said = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    return [*([{"role": "system", "content": system}] if system else []), *said]


def shown(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text with its special tokens."""
    return str(tokenizer.decode(ids))

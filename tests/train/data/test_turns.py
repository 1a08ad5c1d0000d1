"""Where an answer begins and ends: by the chat template, for templates like those of well-known families."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from forerun.engine.prompts.forms import encode
from forerun.train.data.turns import answered, encoded_text, end_of_sequence, ended, rendered, split_ids, turn_end

from ..templates import BARE, CHATML, GEMMA, LLAMA2, LLAMA3, QWEN3, R1, Family, chat, shown, tokenizer_of

FAMILIES = {
    "gemma": GEMMA,
    "llama 3": LLAMA3,
    "chatml": CHATML,
    "qwen 3": QWEN3,
    "r1": R1,
    "llama 2": LLAMA2,
    "bare": BARE,
}


def parts(family: Family, *texts: str, eos: tuple[str, ...] = ()) -> tuple[str, str]:
    """The text before the answer, and what is learnt."""
    tokenizer = tokenizer_of(family)
    ids, learnt = answered(tokenizer, chat(*texts), tokenizer.convert_tokens_to_ids(list(eos)))
    return shown(tokenizer, ids), shown(tokenizer, learnt)


@pytest.mark.parametrize("family", [GEMMA, LLAMA3, CHATML], ids=["gemma", "llama 3", "chatml"])
@pytest.mark.parametrize("known", [True, False])
def test_an_answer_ends_as_the_template_ends_it_and_its_prompt_is_what_decoding_reads(
    family: Family, known: bool
) -> None:
    tokenizer, messages = tokenizer_of(family), chat("a", "b", "c", "the answer")
    eos = [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids([family.end])] if known else []
    ids, learnt = answered(tokenizer, messages, eos)

    assert shown(tokenizer, learnt) == f"the answer{family.end}"
    assert learnt[-1] == tokenizer.convert_tokens_to_ids(family.end) == turn_end(tokenizer, eos)
    assert ids == encode(messages[:-1], tokenizer)
    assert rendered(tokenizer, messages).startswith(shown(tokenizer, [*ids, *learnt]))


@pytest.mark.parametrize("family", [GEMMA, LLAMA3], ids=["gemma", "llama 3"])
def test_a_template_that_writes_the_beginning_of_sequence_writes_the_only_one(family: Family) -> None:
    prompt, learnt = parts(family, "a", "b")

    assert prompt.count(family.bos) == 1
    assert family.bos not in learnt


def test_a_template_that_trims_texts_has_them_trimmed() -> None:
    assert parts(GEMMA, " a ", "\n b \n") == (
        "<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\n",
        "b<end_of_turn>",
    )


def test_learning_goes_on_to_where_decoding_stops() -> None:
    longer = Family(
        CHATML.template.replace("+ '\n' }}{% endfor", "+ '<|endoftext|>' }}{% endfor"), CHATML.eos, CHATML.end
    )

    assert parts(longer, "a", "b", eos=("<|endoftext|>",))[1] == "b<|im_end|><|endoftext|>"
    assert parts(longer, "a", "b", eos=("<|endoftext|>", "<|im_end|>"))[1] == "b<|im_end|>"


def test_thoughts_are_learnt_in_the_templates_form_and_dropped_from_earlier_turns() -> None:
    prompt, learnt = parts(QWEN3, "a", "<think>\nold\n</think>\n\nb", "c", "<think>new</think>d")

    assert "old" not in prompt
    assert learnt == "<think>\nnew\n</think>\n\nd<|im_end|>"
    assert parts(QWEN3, "a", "b") == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n",
        "<think>\n\n</think>\n\nb<|im_end|>",
    )


def test_thoughts_that_the_template_would_drop_are_learnt_as_the_model_writes_them() -> None:
    asked = "<bos><User>a<Assistant><think>\n"

    assert parts(R1, "a", "<think>\nwhy\n</think>\n\nb") == (asked, "why\n</think>\n\nb<eos>")
    assert parts(R1, "a", "why\n</think>\n\nb") == (asked, "why\n</think>\n\nb<eos>")


def test_an_answer_without_thoughts_is_not_learnt_as_a_thought() -> None:
    assert parts(R1, "a", "b") == ("<bos><User>a<Assistant>", "b<eos>")
    assert parts(R1, "a", "<thin air") == ("<bos><User>a<Assistant>", "<thin air<eos>")


def test_a_template_without_a_beginning_of_answers_gives_the_answers_own() -> None:
    assert parts(LLAMA2, "a", "b") == ("<s>[INST] a [/INST]", " b </s>")
    assert parts(BARE, "a", "b") == ("user: a\nassistant:", " b</s>")


@pytest.mark.parametrize("name", FAMILIES)
def test_an_end_that_the_text_brings_is_learnt_once(name: str) -> None:
    family = FAMILIES[name]
    learnt = parts(family, "a", f"b{family.end}")[1]

    assert learnt.count(family.end) == 1
    assert learnt.endswith(family.end)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_end_of_a_turn_is_known_by_itself(name: str) -> None:
    tokenizer = tokenizer_of(FAMILIES[name])
    expected = None if name == "bare" else tokenizer.convert_tokens_to_ids(FAMILIES[name].end)

    assert turn_end(tokenizer, ()) == expected


def test_what_the_template_refuses_is_refused_with_its_reason() -> None:
    with pytest.raises(ValueError, match="can't be applied to these messages: System role not supported"):
        answered(tokenizer_of(GEMMA), chat("a", "b", system="s"), ())
    broken = tokenizer_of(Family("{% for %}", "<eos>", "<eos>"))
    with pytest.raises(ValueError, match="the chat template can't be applied"):
        answered(broken, chat("a", "b"), ())
    assert turn_end(broken, ()) is None


def test_a_template_that_shows_no_answer_is_refused() -> None:
    mute = tokenizer_of(Family("{{ messages[0].content }}", "<eos>", "<eos>"))
    with pytest.raises(ValueError, match="doesn't show what the assistant says"):
        answered(mute, chat("a", "b"), ())


def test_a_text_gets_no_second_beginning_or_end() -> None:
    tokenizer = tokenizer_of(GEMMA)
    bos = tokenizer.bos_token_id

    assert encoded_text(tokenizer, "<bos>a") == encoded_text(tokenizer, "a") == [bos, *tokenizer("a").input_ids[1:]]
    assert encoded_text(tokenizer, "<bos><bos>a")[:3] == [bos, bos, tokenizer("a").input_ids[1]]
    plain = tokenizer_of(CHATML)
    assert encoded_text(plain, "a") == plain("a").input_ids


def test_a_tokenizer_that_ends_texts_ends_them_once() -> None:
    tokenizer: Any = tokenizer_of(CHATML)
    eos = tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", eos)]
    )

    assert encoded_text(tokenizer, "a<|endoftext|>") == encoded_text(tokenizer, "a")
    assert encoded_text(tokenizer, "a")[-1] == eos


def test_an_answer_goes_on_from_its_prompt_in_the_tokens_of_the_whole() -> None:
    tokenizer = tokenizer_of(GEMMA)
    ids, learnt = split_ids(tokenizer, "ab", "cd", special=True)

    assert [*ids, *learnt] == tokenizer("abcd").input_ids
    assert shown(tokenizer, learnt) == "cd"


def test_the_end_comes_once() -> None:
    assert ended([1, 2], 9) == ended([1, 2, 9, 9], 9) == [1, 2, 9]
    assert ended([1, 9], None) == [1, 9]


def test_without_a_tokenizers_end_the_only_one_of_decoding_is_taken() -> None:
    tokenizer = tokenizer_of(CHATML)
    assert end_of_sequence(tokenizer, (3,)) == tokenizer.eos_token_id
    tokenizer.eos_token = None
    assert (end_of_sequence(tokenizer, (3,)), end_of_sequence(tokenizer, (3, 4)), end_of_sequence(tokenizer, ())) == (
        3,
        None,
        None,
    )


@pytest.mark.parametrize("scheme", ["always", "first"])
def test_words_that_begin_with_a_blank_are_the_same_words_after_a_prompt(scheme: str) -> None:
    words = [
        ("\u2581[", -1.0),
        ("INST]", -1.0),
        ("[", -3.0),
        ("/", -3.0),
        ("\u2581", -3.0),
        ("\u2581b", -1.0),
        ("b", -3.0),
    ]
    inner = Tokenizer(models.Unigram([("<unk>", -9.0), *words], unk_id=0))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    inner.add_special_tokens([LLAMA2.bos, LLAMA2.eos])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=LLAMA2.bos, eos_token=LLAMA2.eos, chat_template=LLAMA2.template
    )
    ids, learnt = answered(tokenizer, chat("b", "b b"), ())

    assert tokenizer.convert_ids_to_tokens(ids)[-4:] == ["\u2581b", "\u2581[", "/", "INST]"]
    assert tokenizer.convert_ids_to_tokens(learnt) == ["\u2581b", "\u2581b", "\u2581", "</s>"]

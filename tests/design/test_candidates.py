"""Existing drafts on the token log."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from forerun.design.candidates import Candidate, read_log_with
from forerun.design.log import LoggedAnswer
from forerun.engine.engine import Engine
from forerun.errors import UnsupportedOption
from forerun.models.files.draft import DraftFile, write_draft
from forerun.testing import save_tiny, tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def log(engine: Engine) -> list[LoggedAnswer]:
    prompts = [[7 * i % 250 for i in range(start, start + 9)] for start in (0, 5, 11)]
    answers = engine.generate(prompts, max_new_tokens=16, ignore_eos=True)
    return [LoggedAnswer((*prompt, *answer.ids), len(prompt)) for prompt, answer in zip(prompts, answers, strict=True)]


def perplexity(model: Path, log: list[LoggedAnswer]) -> float:
    """By transformers' own forward."""
    own = AutoModelForCausalLM.from_pretrained(model)
    nats = tokens = 0.0
    for one in log:
        with torch.no_grad():
            logits = own(torch.tensor([one.ids]), use_cache=False).logits[0]
        laws = logits.log_softmax(-1)
        nats -= sum(float(laws[one.start - 1 + i, token]) for i, token in enumerate(one.answer))
        tokens += len(one.answer)
    return math.exp(nats / tokens)


def test_a_candidate_is_called_by_its_folder_and_its_options() -> None:
    assert Candidate("smollm2").name == "smollm2"
    assert Candidate("runs/small", {"vocabulary": 100}).name == "small,vocabulary=100"


def test_the_target_itself_is_always_right(engine: Engine, tiny: Path, log: list[LoggedAnswer]) -> None:
    told = read_log_with(engine, Candidate(str(tiny)), log)
    assert told.draft.acceptance == 1.0
    assert told.draft.rounds(3).tokens_per_round == pytest.approx(45 / 12)


def test_perplexity_is_that_of_the_draft_on_the_answers(
    engine: Engine, tiny: Path, small: Path, log: list[LoggedAnswer]
) -> None:
    for path in (tiny, small):
        told = read_log_with(engine, Candidate(str(path)), log)
        assert told.perplexity == pytest.approx(perplexity(path, log), rel=1e-3)


def test_a_cut_head_changes_what_is_drafted_and_not_the_perplexity(
    engine: Engine, tiny: Path, log: list[LoggedAnswer]
) -> None:
    whole, cut = (read_log_with(engine, Candidate(str(tiny), options), log) for options in ({}, {"vocabulary": 40}))
    answer = [token for one in log for token in one.answer[1:]]
    assert cut.draft.acceptance == pytest.approx(sum(token < 40 for token in answer) / len(answer))
    assert cut.draft.acceptance < 1.0
    assert cut.perplexity == pytest.approx(whole.perplexity)


def test_a_trained_draft_brings_its_own_vocabulary(engine: Engine, log: list[LoggedAnswer], tmp_path: Path) -> None:
    trained = save_tiny(tmp_path / "trained", max_position_embeddings=512)
    answer = [token for one in log for token in one.answer[1:]]
    write_draft(DraftFile(torch.tensor(sorted(set(answer))), len(set(answer))), trained)
    told = read_log_with(engine, Candidate(str(trained)), log)
    assert Candidate(str(trained)).vocabulary == len(set(answer)) < 260
    assert Candidate(str(trained), {"vocabulary": 0}).vocabulary == 0
    assert told.draft.acceptance == 1.0
    assert told.perplexity == pytest.approx(
        read_log_with(engine, Candidate(str(trained), {"vocabulary": 0}), log).perplexity
    )


def test_each_answer_is_told(engine: Engine, small: Path, log: list[LoggedAnswer]) -> None:
    ticks: list[None] = []
    read_log_with(engine, Candidate(str(small)), log, lambda: ticks.append(None))
    assert len(ticks) == 3


def test_a_candidate_with_another_tokenizer_is_refused(engine: Engine, log: list[LoggedAnswer], tmp_path: Path) -> None:
    vocabulary = tiny_tokenizer().get_vocab()
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    swapped = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    PreTrainedTokenizerFast(tokenizer_object=swapped).save_pretrained(tmp_path / "other")
    tiny_model("llama", vocab_size=len(vocabulary)).save_pretrained(tmp_path / "other")
    with pytest.raises(UnsupportedOption, match=r"has another tokenizer: id \d+ is"):
        read_log_with(engine, Candidate(str(tmp_path / "other")), log)


def test_an_answer_that_a_candidate_cant_hold_is_named(engine: Engine, log: list[LoggedAnswer], tmp_path: Path) -> None:
    short = save_tiny(tmp_path / "short", max_position_embeddings=12)
    with pytest.raises(UnsupportedOption, match="short can't read an answer of the log: the text has"):
        read_log_with(engine, Candidate(str(short)), log)

"""A draft model beside vLLM: many requests' drafts share forwards, say what they say alone, and hold what memory allows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.drafters.corpora.files import build_corpus
from forerun.engines.vllm import Proposer
from forerun.engines.vllm.drafting import DraftMemory, one_by_one, together
from forerun.engines.vllm.request import Request
from forerun.errors import UnsupportedOption
from forerun.testing import save_tiny_draft, tiny_model

from .fake import FakeVllm, config
from .recording import Counting, UpTo

SHAPE = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 32,
    "vocab_size": 97,
    "tie_word_embeddings": False,
}


class Served:
    """A tiny model in files, a compact draft of all its layers, and how the model goes on."""

    def __init__(self, folder: Path) -> None:
        self.model = tiny_model("llama", intermediate_size=64)
        self.path = folder / "model"
        self.model.save_pretrained(self.path)
        self.draft = save_tiny_draft(folder / "draft", self.model, (0, 1, 2, 3), weights="int8")
        self.exact = folder / "model"
        self._known: dict[tuple[int, ...], int] = {}

    def after(self, ids: Sequence[int]) -> int:
        key = tuple(ids)
        if key not in self._known:
            with torch.no_grad():
                self._known[key] = int(self.model(torch.tensor([ids])).logits[0, -1].argmax())
        return self._known[key]

    def proposer(self, drafter: dict[str, Any], policy: dict[str, Any] | None = None, **forerun: Any) -> Proposer:
        chosen = {"drafter": drafter, "policy": policy or {"name": "fixed", "k": 3}, **forerun}
        return Proposer(config(forerun=chosen, path=str(self.path), **SHAPE))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(tmp_path_factory.mktemp("served"))


def answers(proposer: Proposer, served: Served, new: int = 12) -> tuple[list[list[int]], FakeVllm]:
    vllm = FakeVllm(proposer, served.after)
    asked = [vllm.ask([3 + place, 40, 5 * place + 1], new) for place in range(5)]
    while vllm.busy:
        vllm.step()
    return [one.answer for one in asked], vllm


@pytest.mark.parametrize("kind", ["draft", "exact"])
def test_a_draft_of_all_layers_is_nearly_always_right(served: Served, kind: str) -> None:
    """Whether it comes as a compact draft on the tables in the model's files, or as a directory of its own."""
    proposer = served.proposer({"name": "draft_model", "model": str(getattr(served, kind))})
    plain, steps = answers(served.proposer({"name": "lookup"}, {"name": "fixed", "k": 1}), served)
    drafted, fewer = answers(proposer, served)

    assert drafted == plain
    assert sum(tokens for _, tokens in fewer.took) > 20
    assert len(fewer.took) <= len(steps.took) / 2


@pytest.mark.parametrize(
    "drafter",
    [{"name": "cascade", "of": "suffix,draft_model"}, {"name": "hybrid", "then": "draft_model"}],
    ids=["cascade", "hybrid"],
)
@pytest.mark.parametrize("policy", ["cost", "governor"])
def test_cascades_with_a_draft_model_draft_under_the_policies(
    served: Served, drafter: dict[str, Any], policy: str
) -> None:
    proposer = served.proposer({**drafter, "model": str(served.draft)}, {"name": policy})
    plain, _ = answers(served.proposer({"name": "lookup"}, {"name": "fixed", "k": 1}), served, 30)
    drafted, vllm = answers(proposer, served, 30)

    assert drafted == plain
    assert sum(tokens for _, tokens in vllm.took) > 0
    assert proposer.in_flight <= 5


def test_a_corpus_drafts_alone_and_in_a_cascade(served: Served, tmp_path: Path) -> None:
    plain, _ = answers(served.proposer({"name": "lookup"}, {"name": "fixed", "k": 1}), served)
    build_corpus([[3 + place, 40, 5 * place + 1, *plain[place]] for place in range(5)], tmp_path / "corpus", ("", 97))
    for drafter in ({"name": "corpus"}, {"name": "cascade", "of": "lookup,corpus"}):
        drafted, vllm = answers(served.proposer({**drafter, "path": str(tmp_path / "corpus")}), served)

        assert drafted == plain
        assert len(vllm.took) <= 8


def test_a_corpus_of_another_tokenizer_is_refused_when_vllm_starts(served: Served, tmp_path: Path) -> None:
    build_corpus([[1, 2]], tmp_path / "corpus", ("", 5))
    with pytest.raises(UnsupportedOption, match="is of another tokenizer"):
        served.proposer({"name": "corpus", "path": str(tmp_path / "corpus")})


def test_drafts_that_share_forwards_are_those_of_each_alone() -> None:
    def requests() -> list[tuple[Request, int]]:
        made = [Request(Counting(), UpTo(2 + place), [9, 10 * place], 1, 100, frozenset()) for place in range(3)]
        return [(request, 8 - place) for place, request in enumerate(made)]

    assert together(requests()) == one_by_one(requests()) == [[1, 2], [11, 12, 13], [21, 22, 23, 24]]


def test_requests_share_the_draft_models_forwards(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    proposer = served.proposer({"name": "draft_model", "model": str(served.draft)})
    from forerun.models.lean.runner import LeanRunner

    sizes: list[int] = []
    execute = LeanRunner.execute

    def counted(self: LeanRunner, requests: Any) -> Any:
        sizes.append(len(requests))
        return execute(self, requests)

    monkeypatch.setattr(LeanRunner, "execute", counted)
    answers(proposer, served)
    assert max(sizes) == 5


def asked(length: int) -> tuple[Request, Counting]:
    drafter = Counting()
    return Request(drafter, UpTo(), [5] * length, 1, 100, frozenset()), drafter


def test_requests_beyond_the_memory_are_let_go_the_newest_first(caplog: pytest.LogCaptureFixture) -> None:
    held, drafters = zip(*(asked(length) for length in (20, 20, 20, 5)), strict=True)
    memory = DraftMemory(50)
    with caplog.at_level(logging.WARNING):
        memory.fit(held)
        memory.fit(held)

    assert [request.plain for request in held] == [False, False, True, False]
    assert [drafter.closed for drafter in drafters] == [0, 0, 1, 0]
    assert [record.message for record in caplog.records] == [
        "the draft model holds keys and values of 50 tokens at most; requests beyond that are decoded without drafts; "
        "give it more with draft_memory"
    ]
    for request in held:
        request.end()
    assert [drafter.closed for drafter in drafters] == [1, 1, 1, 1]


def test_a_draft_model_that_reads_ends_of_prompts_holds_no_more_than_those() -> None:
    held = [asked(40)[0] for _ in range(4)]
    DraftMemory(50, reads=10).fit(held)

    assert not any(request.plain for request in held)


def test_requests_that_were_let_go_are_answered_all_the_same(served: Served) -> None:
    model = {"name": "draft_model", "model": str(served.draft)}
    # keys and values of a token take 4 layers x 2 heads x 8 x 2 x 4 bytes, so this is 10 tokens, two of the prompts
    proposer = served.proposer(model, draft_memory=10 * 512 / 2**30)
    plain, _ = answers(served.proposer({"name": "lookup"}, {"name": "fixed", "k": 1}), served)
    drafted, vllm = answers(proposer, served)

    assert drafted == plain
    assert 0 < max(tokens for _, tokens in vllm.took) <= 2 * 3


@pytest.mark.parametrize("value", [0, -1, True, "1", None])
def test_a_memory_that_is_no_number_of_gib_is_refused(served: Served, value: Any) -> None:
    with pytest.raises(UnsupportedOption, match="draft_memory must be a number of GiB above 0, got"):
        served.proposer({"name": "lookup"}, draft_memory=value)

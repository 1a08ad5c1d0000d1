"""The generation contract: prompts in, text out, as if tokens came one at a time."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import Engine, Result, UnsupportedOption, load
from forerun.drafters.lookup import Lookup
from forerun.models.packed.request import Request
from forerun.policies.fixed import Fixed
from forerun.testing import save_tiny, tiny_model, tiny_tokenizer

PROMPT = "to be or not to be, to be or"
TOKENIZER = tiny_tokenizer()


@cache
def model() -> Any:
    return tiny_model("llama", vocab_size=len(TOKENIZER))


@cache
def engine(drafter: str = "lookup", policy: str = "fixed") -> Engine:
    return load(model(), TOKENIZER, drafter, policy)


@cache
def cycling_model() -> Any:
    """A model that repeats a short cycle, so that lookup drafts long blocks that are accepted."""
    tiny = tiny_model("llama", vocab_size=len(TOKENIZER), num_hidden_layers=1)
    with torch.no_grad():
        for parameter in tiny.model.layers.parameters():
            parameter.zero_()
        tiny.model.embed_tokens.weight.zero_()
        tiny.lm_head.weight.zero_()
        cycle = TOKENIZER("abcde€ ").input_ids
        for i, token in enumerate(cycle):
            tiny.model.embed_tokens.weight[token, i] = 1
            tiny.lm_head.weight[cycle[(i + 1) % len(cycle)], i] = 1
    return tiny


@cache
def repeating() -> Engine:
    return load(cycling_model(), TOKENIZER, "lookup", "fixed", policy_options={"k": 8})


CYCLE = "abcde€ "
LONG = CYCLE * 3


def after(text: str, **options: Any) -> Result:
    result: Result = repeating().generate(LONG + text, **options)
    return result


def test_the_repeating_model_accepts_whole_blocks() -> None:
    result = after("", max_new_tokens=40)
    assert result.text == (CYCLE * 5)[: len(result.text)]
    assert result.stats.tokens_per_round > 5


def test_a_batch_may_be_left_open_and_be_any_whole_number() -> None:
    whole = engine().generate([[5, 6], [7]], max_new_tokens=3)
    for size in (None, 1.0, 2):
        assert [one.ids for one in engine().generate([[5, 6], [7]], max_new_tokens=3, max_batch=size)] == (
            [one.ids for one in whole]
        )
    with pytest.raises(ValueError, match=r"max_batch must be a whole number, got 1\.5"):
        engine().generate([5], max_batch=1.5)


def test_a_text_prompt_is_answered_with_text_and_ids() -> None:
    result = engine().generate(PROMPT, max_new_tokens=12)
    assert result.text == TOKENIZER.decode(result.ids, skip_special_tokens=True)
    assert len(result.ids) <= 12
    assert result.prompt_tokens == len(TOKENIZER(PROMPT).input_ids)


def test_messages_and_ids_are_answered_alike() -> None:
    messages = [{"role": "user", "content": "hello"}]
    ids = TOKENIZER("<user>hello<end><assistant>").input_ids
    assert engine().generate(messages, max_new_tokens=8).ids == engine().generate(ids, max_new_tokens=8).ids


def test_several_prompts_give_several_results_in_order() -> None:
    prompts = ["one", "two two two", PROMPT, "x"]
    alone = [engine().generate(prompt, max_new_tokens=10).ids for prompt in prompts]
    together = engine().generate(prompts, max_new_tokens=10)
    assert [result.ids for result in together] == alone
    assert [result.ids for result in engine().generate(prompts, max_new_tokens=10, max_batch=2)] == alone


def test_it_works_on_ids_without_a_tokenizer() -> None:
    bare = load(model(), drafter="lookup")
    result = bare.generate([1, 2, 3], max_new_tokens=5)
    assert result.text is None
    assert len(result.ids) == 5


def test_speculation_is_on_or_off_for_each_request_of_a_batch() -> None:
    asked = [(LONG, {"max_new_tokens": 24, "speculate": speculate}) for speculate in (True, False, True)]
    fast, plain, again = (result for _, result in sorted(repeating().each(asked)))
    assert fast.ids == plain.ids == again.ids == after("", max_new_tokens=24).ids
    assert (plain.stats.drafted, plain.stats.rounds) == (0, 23)
    assert fast.stats.accepted > 0
    assert fast.stats.rounds == again.stats.rounds < 10


def test_objects_may_stand_for_names() -> None:
    built = load(model(), TOKENIZER, lambda target: Lookup(2, 1), lambda: Fixed(2))
    assert built.generate(PROMPT, max_new_tokens=10).ids == engine().generate(PROMPT, max_new_tokens=10).ids


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_exactly_max_new_tokens_come_out(count: int) -> None:
    result = after("", max_new_tokens=count)
    assert len(result.ids) == count
    assert result.finish_reason == "length"


def test_an_end_of_sequence_inside_an_accepted_block_ends_the_text() -> None:
    end = TOKENIZER("d").input_ids[0]
    with_end = load(cycling_model(), TOKENIZER, "lookup", policy_options={"k": 8})
    with_end.eos = frozenset({end, TOKENIZER("e").input_ids[0]})
    result = with_end.generate(LONG, max_new_tokens=40)
    assert result.text == "abcd"
    assert result.ids[-1] == end
    assert result.finish_reason == "stop"
    ignoring = with_end.generate(LONG, max_new_tokens=40, ignore_eos=True)
    assert len(ignoring.ids) == 40


def test_a_stop_string_inside_an_accepted_block_cuts_text_ids_and_logprobs() -> None:
    result = after("", max_new_tokens=40, stop=["de", "cdeX"], logprobs=0)
    assert result.text == "abc"
    assert TOKENIZER.decode(result.ids) == "abcde"
    assert result.logprobs is not None
    assert len(result.logprobs) == len(result.ids)
    assert result.finish_reason == "stop"


def test_a_stop_string_ends_where_it_would_without_speculation() -> None:
    for stop in ["e", "€ a", " ", "ea", "bcde€ ab"]:
        fast = after("", max_new_tokens=40, stop=stop)
        plain = after("", max_new_tokens=40, stop=stop, speculate=False)
        assert (fast.text, fast.ids, fast.finish_reason) == (plain.text, plain.ids, plain.finish_reason)


def test_a_stop_string_that_ends_with_the_last_token_is_found() -> None:
    result = after("", max_new_tokens=3, stop="c")
    assert (result.text, result.finish_reason) == ("ab", "stop")


def test_the_pieces_of_a_stream_join_to_the_text() -> None:
    for options in [{}, {"stop": "e€"}, {"stop": "zzz"}, {"temperature": 1.0, "seed": 1}]:
        pieces = list(repeating().stream(LONG, max_new_tokens=25, **options))
        result = pieces[-1].result
        assert result is not None
        assert "".join(piece.text for piece in pieces) == result.text
        assert tuple(token for piece in pieces for token in piece.ids) == result.ids
        assert all("\ufffd" not in piece.text for piece in pieces[:-1])


def test_a_stream_says_which_tokens_were_drafted() -> None:
    pieces = list(repeating().stream(LONG, max_new_tokens=25))
    result = pieces[-1].result
    assert result is not None
    assert sum(piece.drafted for piece in pieces) == result.stats.accepted
    assert not pieces[0].drafted


def test_a_stream_that_is_closed_gives_its_sequence_back() -> None:
    built = load(model(), TOKENIZER, "self", drafter_options={"exit_layer": 2})
    stream = built.stream(PROMPT, max_new_tokens=30)
    next(stream)
    next(stream)
    stream.close()
    assert built.generate(PROMPT, max_new_tokens=9).ids == engine().generate(PROMPT, max_new_tokens=9).ids


def test_logprobs_are_the_targets_raw_log_softmax() -> None:
    result = engine().generate([1, 2, 3], max_new_tokens=6, logprobs=3, temperature=0.7, seed=5)
    ids = [1, 2, 3, *result.ids]
    with torch.inference_mode():
        wanted = model()(torch.tensor([ids])).logits[0].log_softmax(-1)
    assert result.logprobs is not None
    for i, entry in enumerate(result.logprobs):
        row = wanted[2 + i]
        assert entry.token == result.ids[i]
        assert entry.logprob == pytest.approx(float(row[entry.token]), abs=1e-4)
        assert [token for token, _ in entry.top] == row.topk(3).indices.tolist()


def test_processed_logprobs_are_those_that_were_drawn_from() -> None:
    options = {"logprobs": 5, "processed_logprobs": True, "temperature": 0.5, "top_k": 2, "seed": 1}
    result = engine().generate([1, 2, 3], max_new_tokens=4, **options)
    assert result.logprobs is not None
    for entry in result.logprobs:
        probabilities = [float(torch.tensor(value).exp()) for _, value in entry.top]
        assert sum(probabilities[:2]) == pytest.approx(1, abs=1e-5)
        assert len(probabilities) == 2, "what the filters leave no chance is no alternative"


def test_seeds_are_per_request_and_fresh_ones_differ() -> None:
    options = {"max_new_tokens": 12, "temperature": 1.0}
    assert engine().generate(PROMPT, seed=1, **options).ids == engine().generate(PROMPT, seed=1, **options).ids
    assert engine().generate(PROMPT, seed=1, **options).ids != engine().generate(PROMPT, seed=2, **options).ids
    torch.manual_seed(0)
    first = [engine().generate(PROMPT, **options).ids for _ in range(2)]
    torch.manual_seed(0)
    assert [engine().generate(PROMPT, **options).ids for _ in range(2)] == first
    assert first[0] != first[1]


class Counting:
    """Counts the rows that a runner computes."""

    def __init__(self, built: Engine) -> None:
        self.rows = 0
        self._execute = built.runner.execute
        built.runner.execute = self.execute  # type: ignore[method-assign]

    def execute(self, requests: list[Request]) -> Any:
        self.rows += sum(request.part.n for request in requests)
        return self._execute(requests)


@pytest.mark.parametrize("drafter", ["none", "lookup", "self", "draft_model"])
def test_a_second_turn_reuses_the_first_ones_prefix(drafter: str) -> None:
    options = {"self": {"exit_layer": 2}, "draft_model": {"model": model()}}.get(drafter)
    built = load(model(), TOKENIZER, drafter, drafter_options=options)
    first = [{"role": "user", "content": "tell me something long " * 4}]
    answer = built.generate(first, max_new_tokens=20)
    second = [*first, {"role": "assistant", "content": answer.text}, {"role": "user", "content": "more"}]
    counting = Counting(built)
    got = built.generate(second, max_new_tokens=1)
    assert counting.rows < 50
    fresh = load(model(), TOKENIZER, "none")
    assert got.ids == fresh.generate(second, max_new_tokens=1).ids


def test_turns_of_two_conversations_may_alternate() -> None:
    built = load(model(), TOKENIZER, "lookup")
    fresh = load(model(), TOKENIZER, "none")
    texts = {"a": "once upon a time", "b": "the other story"}
    for _ in range(3):
        for name in texts:
            result = built.generate(texts[name], max_new_tokens=6)
            assert result.ids == fresh.generate(texts[name], max_new_tokens=6).ids
            texts[name] += f"{result.text} and then"


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("", {}, "the prompt is empty"),
        ([], {}, "the prompt is empty"),
        ([1, 999], {}, "token ids must be in 0..259, got 999"),
        ([-1], {}, "token ids must be in 0..259, got -1"),
        (list(range(97)) * 3, {}, "the prompt has 291 tokens and the context holds 256"),
        ("hi", {"temperature": -0.1}, "temperature must be 0 .*, got -0.1"),
        ("hi", {"top_p": 0}, "top_p must be in"),
        ("hi", {"max_new_tokens": -1}, "max_new_tokens must be at least 0"),
        ("hi", {"max_batch": 0}, "max_batch must be at least 1"),
        ("hi", {"colour": "red"}, "unknown option 'colour'"),
        ("hi", {"stop": [""]}, "a stop string must not be empty"),
    ],
)
def test_bad_input_is_one_clear_sentence(prompt: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine().generate(prompt, **options)


def test_a_bad_prompt_among_good_ones_fails_before_anything_runs() -> None:
    built = load(model(), TOKENIZER)
    counting = Counting(built)
    with pytest.raises(ValueError, match="the prompt is empty"):
        built.generate(["good", ""])
    assert counting.rows == 0


def test_a_stream_checks_its_options_at_once() -> None:
    with pytest.raises(UnsupportedOption, match="unknown option"):
        engine().stream("hi", colour="red")
    with pytest.raises(UnsupportedOption, match="stream takes one prompt"):
        engine().stream(["a", "b"])


def test_stop_strings_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(UnsupportedOption, match="need a tokenizer"):
        load(model()).generate([1], stop="x")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"drafter": "oracle"},
            "unknown drafter 'oracle'; known: auto, cascade, .*hybrid, lookup, ngrams, none, prediction, recycle, self",
        ),
        ({"policy": "never"}, "unknown policy 'never'; known: acceptance_head, "),
        (
            {"drafter": "lookup", "drafter_options": {"k": 3}},
            "drafter 'lookup' has no option 'k'; its options: max_ngram",
        ),
        ({"policy_options": {"k": 0}}, "k must be at least 1, got 0"),
        ({"drafter": "self", "drafter_options": {"exit_layer": 4}}, "exit_layer must be in 1..3"),
        ({"drafter": "self", "drafter_options": {"skip_mlp": (4,)}}, "a skipped layer must be in 0..3, got 4"),
        ({"drafter": "self", "drafter_options": {"exit_layer": 1, "skip_mlp": (0,)}}, "not both"),
    ],
)
def test_bad_methods_are_refused_at_load(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(model(), TOKENIZER, **given)


def test_a_draft_model_that_several_methods_name_is_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = save_tiny(tmp_path / "small", num_hidden_layers=1), []
    module = import_module("forerun.engine.engine")
    real = module.open_model
    monkeypatch.setattr(module, "open_model", lambda other, **more: opened.append(other) or real(other, **more))
    plain = load(model(), TOKENIZER)
    one = plain.using("draft_model", drafter_options={"model": path})
    other = plain.using("tree", drafter_options={"of": "draft_model", "model": str(path)})
    assert opened == [model(), path]
    expected = plain.generate(PROMPT, max_new_tokens=12).ids
    assert one.generate(PROMPT, max_new_tokens=12).ids == other.generate(PROMPT, max_new_tokens=12).ids == expected


def test_a_draft_model_with_another_tokenizer_is_refused() -> None:
    # the vocabulary comes with the model object only through a path, so compare at the seam
    from forerun.drafters.draft_model import compare_vocabularies

    ours = TOKENIZER.get_vocab()
    shifted = {token: (index + 1) % len(ours) for token, index in ours.items()}
    with pytest.raises(UnsupportedOption, match="another tokenizer"):
        compare_vocabularies(ours, shifted, 260, "other")


def test_each_gives_results_as_they_end_with_the_number_of_their_request() -> None:
    asked = [("one", {"max_new_tokens": count}) for count in (9, 2, 5)]
    found = list(engine().each(asked))
    assert [index for index, _ in found] == [1, 2, 0]
    for index, result in found:
        assert result.ids == engine().generate("one", max_new_tokens=asked[index][1]["max_new_tokens"]).ids
    assert dict(engine().each(asked, max_batch=1))[0].ids == dict(found)[0].ids
    assert list(engine().each([])) == []


@pytest.mark.parametrize(
    ("asked", "options", "message"),
    [
        ([("one", {}), ("two", {"temprature": 1})], {}, "unknown option 'temprature'"),
        ([("one", {}), ([1, 10_000], {})], {}, "token ids must be in 0..259, got 10000"),
        ([("one", {})], {"max_batch": 0}, "max_batch must be at least 1, got 0"),
    ],
)
def test_each_checks_every_request_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, asked: Any, options: Any, message: str
) -> None:
    monkeypatch.setattr(Engine, "rounds", lambda *given: pytest.fail("it runs"))
    with pytest.raises(ValueError, match=message):
        engine().each(asked, **options)


def test_each_ends_its_requests_when_it_is_closed() -> None:
    own = load(model(), TOKENIZER, "lookup")
    found = own.each([("one", {"max_new_tokens": count}) for count in (1, 30)])
    assert next(found)[0] == 0
    found.close()
    assert len(own._pools[0]._idle) == 2


def test_a_stop_token_ends_the_text_and_is_its_last() -> None:
    (end,) = TOKENIZER("d").input_ids
    result = after("", max_new_tokens=20, stop_token_ids=[end])
    assert (result.ids[-1], result.finish_reason) == (end, "stop")
    assert len(result.ids) < 8
    assert after("", max_new_tokens=20, stop_token_ids=[end], ignore_eos=True).ids == result.ids

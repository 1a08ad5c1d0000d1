"""Several threads on one engine or one hook: each gets what a single thread gets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import forerun
from forerun import Engine, load
from forerun.testing import save_tiny, save_tiny_adapter, tiny_model, tiny_tokenizer

THREADS, REQUESTS = 4, 100
METHODS: dict[str, dict[str, Any]] = {
    "exit": {"drafter": "self", "drafter_options": {"exit_layer": 1}},
    "skip": {"drafter": "self", "drafter_options": {"skip_mlp": (0,), "skip_attention": (1,)}},
    "lookup": {"drafter": "lookup", "policy": "heuristic"},
    "suffix": {"drafter": "suffix", "policy": "cost"},
    "recycle": {"drafter": "recycle", "policy": "cost"},
    "draft_model": {"drafter": "draft_model", "drafter_options": {"model": "small"}},
    "cascade": {"drafter": "cascade", "drafter_options": {"of": "lookup,suffix"}},
    "tree": {"drafter": "tree", "drafter_options": {"of": "draft_model", "model": "small", "n": 2}},
    "ahead": {"drafter": "exit_adapter", "drafter_options": {"adapter": "state+token"}},
    "after": {"drafter": "exit_adapter", "drafter_options": {"adapter": "state"}},
}
PROMPTS = ("ab abab a", [5, 6, 7, 5, 6], [1])
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.3, "seed": 4},
    {"stop": ("e", "th"), "temperature": 1.5, "seed": 5},
    {"logprobs": 2, "speculate": False},
)


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Threads take turns so often that what they share shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """What work gives for the number of each thread."""
    with ThreadPoolExecutor(THREADS) as threads:
        return [done.result() for done in [threads.submit(work, number) for number in range(THREADS)]]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Directories of a target, a draft model and two adapters."""
    root = tmp_path_factory.mktemp("threads")
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 4}
    save_tiny(root / "target", **sizes)
    save_tiny(root / "small", seed=1, **sizes | {"num_hidden_layers": 1})
    model = tiny_model("llama", vocab_size=260, eos_token_id=256, **sizes)
    for inputs in ("state", "state+token"):
        save_tiny_adapter(root / inputs, model, 1, inputs, tokenizer=tiny_tokenizer())
    return {path.name: str(path) for path in root.iterdir()}


def engines_of(places: dict[str, str], runner: str) -> list[Engine]:
    """One model with every method."""
    engine = load(places["target"], runner=runner)
    methods = []
    for method in METHODS.values():
        options = {name: places.get(str(value), value) for name, value in method.get("drafter_options", {}).items()}
        methods.append(engine.using(**method | {"drafter_options": options}))
    return methods


@pytest.mark.parametrize("runner", ["hf", "lean"])
def test_four_threads_get_the_answers_of_one(places: dict[str, str], runner: str) -> None:
    engines = engines_of(places, runner)
    requests = [(e, p, o) for e in range(len(engines)) for p in range(len(PROMPTS)) for o in range(len(OPTIONS))]

    def answer(number: int) -> Any:
        engine, prompt, options = requests[number % len(requests)]
        return engines[engine].generate(PROMPTS[prompt], max_new_tokens=5, **OPTIONS[options])

    expected = [answer(number) for number in range(len(requests))]
    # every request is asked at some time, in another order by each thread
    orders = [[(thread * 37 + 7 * number) % len(requests) for number in range(REQUESTS)] for thread in range(THREADS)]
    results = at_once(lambda thread: [answer(number) for number in orders[thread]])
    for order, answers in zip(orders, results, strict=True):
        for number, actual in zip(order, answers, strict=True):
            single = expected[number]
            assert (actual.ids, actual.text, actual.finish_reason) == (single.ids, single.text, single.finish_reason)
            if single.logprobs is not None:
                ours, theirs = [[step.logprob for step in one.logprobs] for one in (actual, single)]
                assert ours == pytest.approx(theirs, abs=1e-4)


PROMPT = torch.tensor([[5, 6, 7, 5, 6, 8, 5, 6]])
PADDED: dict[str, Any] = {
    "inputs": torch.tensor([[5, 6, 7, 5, 6], [0, 0, 0, 9, 4]]),
    "attention_mask": torch.tensor([[1] * 5, [0] * 3 + [1] * 2]),
    "pad_token_id": 0,
    "eos_token_id": [3, 18, 58],
}
CALLS: tuple[dict[str, Any], ...] = (
    {"inputs": PROMPT},
    PADDED,
    {"inputs": PROMPT, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    {"inputs": PROMPT, "do_sample": True, "top_k": 12, "temperature": 1.5},
    {"inputs": PROMPT, "return_dict_in_generate": True, "output_logits": True},
)


def small_model(seed: int = 0, layers: int = 2) -> Any:
    return tiny_model("llama", seed, hidden_size=16, intermediate_size=24, num_hidden_layers=layers, head_dim=4)


def test_four_threads_on_one_hook_get_what_one_thread_gets() -> None:
    model, draft = small_model(), small_model(1, layers=1)
    hooks = [
        forerun.custom_generate("self", drafter_options={"exit_layer": 1}),
        forerun.custom_generate("lookup", policy="heuristic"),
        forerun.custom_generate("draft_model", drafter_options={"model": draft}),
    ]

    def generate(hook: Any, **call: Any) -> Any:
        return model.generate(**{"do_sample": False, "max_new_tokens": 4, "custom_generate": hook, **call})

    def written(number: int) -> tuple[int, Any]:
        call = number % len(CALLS)
        out = generate(hooks[number % len(hooks)], **CALLS[call])
        return call, torch.cat(out.logits) if call == 4 else out.tolist()

    # chosen drafts leave the draws alone, so sampled calls take lookup's hook and are told apart by their seeds only
    def sampled(_: int) -> list[Any]:
        return [generate(hooks[1], **CALLS[3]).tolist() for _ in range(REQUESTS // 5)]

    def unsampled(thread: int) -> list[Any]:
        return [written(number) for number in range(thread, thread + REQUESTS) if number % len(CALLS) != 3]

    expected = [generate(None, **call) for call in CALLS]
    for call, actual in [one for many in at_once(unsampled) for one in many]:
        if call == 4:
            torch.testing.assert_close(actual, torch.cat(expected[4].logits), atol=1e-4, rtol=1e-4)
        else:
            assert actual == expected[call].tolist()
    torch.manual_seed(0)
    single = [one for many in map(sampled, range(THREADS)) for one in many]
    torch.manual_seed(0)
    assert sorted(one for many in at_once(sampled) for one in many) == sorted(single)


def test_threads_that_bring_models_of_their_own_to_one_hook_get_their_own_texts() -> None:
    models = [small_model(seed) for seed in range(THREADS)]
    hook = forerun.custom_generate()
    options = {"do_sample": False, "max_new_tokens": 6}
    expected = [model.generate(PROMPT, **options).tolist() for model in models]

    def texts(thread: int) -> list[Any]:
        return [models[thread].generate(PROMPT, **options, custom_generate=hook).tolist() for _ in range(3)]

    assert at_once(texts) == [[one] * 3 for one in expected]


def test_forgetting_in_one_thread_leaves_the_others_texts_alone() -> None:
    engine = load(small_model(), drafter="self", drafter_options={"exit_layer": 1})
    prompts = [[5, 6, 7, seed, 5, 6] for seed in range(5)]
    expected = [engine.generate(prompt, max_new_tokens=8).ids for prompt in prompts]

    def texts(thread: int) -> list[Any]:
        found = []
        for prompt in prompts * 4:
            found.append(engine.generate(prompt, max_new_tokens=8).ids)
            if thread == 0:
                engine.forget()
        return found

    assert at_once(texts) == [expected * 4] * THREADS


@pytest.mark.parametrize("policy", ["adaptive", "roc", "cost", "governor"])
def test_threads_share_what_a_policy_learns(policy: str) -> None:
    """Who learns from whom depends on the turns that threads take; greedy texts don't."""
    engine = load(small_model(), drafter="self", policy=policy, drafter_options={"exit_layer": 1})
    carried = engine.using("self", policy, drafter_options={"exit_layer": 1}, policy_options={"carry": True})
    expected = engine.generate([4, 5, 6], max_new_tokens=20).ids
    assert (
        at_once(lambda _: [carried.generate([4, 5, 6], max_new_tokens=20).ids for _ in range(6)])
        == [[expected] * 6] * THREADS
    )

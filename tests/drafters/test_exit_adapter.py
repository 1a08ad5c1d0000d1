"""Drafting with an exit adapter: both kinds, on both runners; turns, refusals, and the default options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun import Engine, load
from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.values import Context
from forerun.errors import InvalidModelFile, ModelNotFound, UnsupportedOption
from forerun.models.files.adapter import read_adapter
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import save_tiny, save_tiny_adapter, tiny_model, tiny_tokenizer

PROMPT = [5, 6, 7, 8, 5, 6, 7]
KINDS = (("state", 1), ("state", 3), ("state+token", 1), ("state+token", 4))
Make = Callable[..., Engine]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model on disk that the lean runner reads, whose tokenizer has as many tokens as it."""
    return save_tiny(tmp_path_factory.mktemp("model"), eos_token_id=None)


@pytest.fixture(scope="module")
def make(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """An engine that drafts with an adapter of such inputs at such an exit, on "lean" or "hf"."""
    model = tiny_model("llama", vocab_size=len(tiny_tokenizer()), eos_token_id=None)
    folder = tmp_path_factory.mktemp("adapters")

    def made(
        runner: str, inputs: str, exit_layer: int, k: int = 4, drafter: str = "exit_adapter", **more: Any
    ) -> Engine:
        place = folder / f"{inputs} {exit_layer}"
        if not place.exists():
            save_tiny_adapter(place, model, exit_layer, inputs, tokenizer=tiny_tokenizer())
        options = {"adapter": str(place), **more}
        return load(saved, runner=runner, drafter=drafter, drafter_options=options, policy_options={"k": k})

    return made


@pytest.fixture(scope="module")
def plain(saved: Path) -> Engine:
    return load(saved, runner="hf")


@pytest.mark.parametrize("runner", ["lean", "hf"])
@pytest.mark.parametrize(("inputs", "exit_layer"), KINDS)
def test_text_is_the_targets_own_and_alone_as_in_a_batch(
    make: Make, plain: Engine, runner: str, inputs: str, exit_layer: int
) -> None:
    prompts = [PROMPT, [3], [9, 9, 2, 1] * 5]
    engine = make(runner, inputs, exit_layer)
    expected = [plain.generate(prompt, max_new_tokens=24, ignore_eos=True).ids for prompt in prompts]
    alone = [engine.generate(prompt, max_new_tokens=24, ignore_eos=True) for prompt in prompts]
    assert [result.ids for result in alone] == expected
    assert all(result.stats.drafted > 0 for result in alone)
    together = engine.generate(prompts, max_new_tokens=24, ignore_eos=True)
    assert [result.ids for result in together] == expected
    assert [result.stats.accepted for result in together] == [result.stats.accepted for result in alone]


@pytest.mark.parametrize(("inputs", "exit_layer"), [("state", 3), ("state+token", 1)])
def test_hybrid_hands_over_to_it_and_its_prefix_catches_up(
    make: Make, plain: Engine, inputs: str, exit_layer: int
) -> None:
    engine = make("lean", inputs, exit_layer, drafter="hybrid", then="exit_adapter")
    result = engine.generate(PROMPT, max_new_tokens=60, ignore_eos=True)
    assert result.ids == plain.generate(PROMPT, max_new_tokens=60, ignore_eos=True).ids
    assert result.stats.drafted > 60


@pytest.mark.parametrize(("inputs", "exit_layer"), [("state", 3), ("state+token", 4)])
def test_a_second_turn_computes_only_what_is_new(
    make: Make, plain: Engine, inputs: str, exit_layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make("hf", inputs, exit_layer)
    first = engine.generate(PROMPT, max_new_tokens=20, ignore_eos=True)
    turn = [*PROMPT, *first.ids, 11, 12]
    synced: list[int] = []
    real = Sequence._run

    async def counted(self: Sequence, tokens: Any, *given: Any, **more: Any) -> Any:
        synced.append(len(tokens))
        return await real(self, tokens, *given, **more)

    monkeypatch.setattr(Sequence, "_run", counted)
    second = engine.generate(turn, max_new_tokens=20, ignore_eos=True)
    assert second.ids == plain.generate(turn, max_new_tokens=20, ignore_eos=True).ids
    # a round's five rows, or what the last round of the first turn left for the adapter to catch up with
    assert max(synced) <= 8 < len(turn)


@pytest.mark.parametrize(("inputs", "exit_layer"), [("state", 3), ("state+token", 4)])
def test_a_turn_after_one_without_drafts_reads_the_states_that_were_not_kept(
    make: Make, plain: Engine, inputs: str, exit_layer: int
) -> None:
    engine = make("hf", inputs, exit_layer)
    first = engine.generate(PROMPT, max_new_tokens=10, ignore_eos=True, speculate=False)
    turn = [*PROMPT, *first.ids, 11]
    result = engine.generate(turn, max_new_tokens=20, ignore_eos=True)
    fresh = make("hf", inputs, exit_layer).generate(turn, max_new_tokens=20, ignore_eos=True)
    assert result.ids == fresh.ids == plain.generate(turn, max_new_tokens=20, ignore_eos=True).ids
    assert result.stats.accepted == fresh.stats.accepted


def test_a_text_of_one_token_is_not_drafted_after_before_it_has_a_state(make: Make) -> None:
    """A prompt of one token: its prefill gives the second, and that token is drafted after."""
    result = make("hf", "state+token", 4).generate([3], max_new_tokens=6, ignore_eos=True)
    assert len(result.ids) == 6
    assert result.stats.drafted > 0


@pytest.mark.parametrize(("inputs", "exit_layer"), [("state", 2), ("state+token", 4)])
def test_no_layer_of_the_base_computes_more_rows_than_are_verified(make: Make, inputs: str, exit_layer: int) -> None:
    """state+token: none runs while drafting; state: those below the exit do, and verification goes on from there."""
    engine = make("hf", inputs, exit_layer)
    assert isinstance(engine.runner, HFRunner)
    rows = [0] * 4

    def count(index: int) -> Any:
        def hook(module: Any, args: Any) -> None:
            rows[index] += args[0].shape[1]

        return hook

    layers = engine.runner.model.model.layers
    handles = [layer.mlp.register_forward_pre_hook(count(index)) for index, layer in enumerate(layers)]
    result = engine.generate(PROMPT, max_new_tokens=30, ignore_eos=True)
    for handle in handles:
        handle.remove()
    verified = len(PROMPT) + result.stats.rounds + result.stats.drafted
    assert rows == [verified] * 4


def test_a_restricted_vocabulary_holds_the_most_frequent_tokens(saved: Path, plain: Engine, tmp_path: Path) -> None:
    model = tiny_model("llama", vocab_size=len(tiny_tokenizer()), eos_token_id=None)
    place = save_tiny_adapter(tmp_path / "adapter", model, 3, "state")
    options = {"adapter": str(place), "vocabulary": 7}
    engine = load(saved, runner="lean", drafter="exit_adapter", drafter_options=options)
    context = Context(list(PROMPT), Seeded(0), max_new_tokens=30)
    rounds = list(drive(engine.rounds(context)))
    expected = plain.generate(PROMPT, max_new_tokens=30, ignore_eos=True)
    assert tuple(context.ids[len(PROMPT) :]) == expected.ids
    drafted = {token for round in rounds for token in round.draft.tokens}
    assert 1 < len(drafted) <= 7
    assert drafted <= set(read_adapter(place).ranking[:7].tolist())


def test_small_weights_of_the_adapter_change_no_text(make: Make, plain: Engine) -> None:
    engine = make("lean", "state+token", 4, weights="int8")
    expected = plain.generate(PROMPT, max_new_tokens=24, ignore_eos=True)
    assert engine.generate(PROMPT, max_new_tokens=24, ignore_eos=True).ids == expected.ids


def test_transformers_modules_have_no_restricted_head(make: Make) -> None:
    with pytest.raises(UnsupportedOption, match="whose head is whole; carving needs the lean runner"):
        make("hf", "state", 3, vocabulary=7)


@pytest.mark.parametrize("vocabulary", [-1, 10_000])
def test_a_vocabulary_out_of_range_is_refused(make: Make, vocabulary: int) -> None:
    with pytest.raises(ValueError, match=rf"must hold 1..260 tokens, got {vocabulary}"):
        make("lean", "state", 3, vocabulary=vocabulary)


def test_another_models_adapter_is_refused(tmp_path: Path) -> None:
    place = str(save_tiny_adapter(tmp_path / "adapter", tiny_model("llama", seed=1), 2, "state"))
    for other, field in ((tiny_model("llama"), "weights"), (tiny_model("qwen2"), "family")):
        with pytest.raises(ValueError, match=rf"was trained for another model: its base's {field} is"):
            load(other, drafter="exit_adapter", drafter_options={"adapter": place})


def test_an_adapter_of_an_exit_that_the_model_lacks_is_refused(tmp_path: Path) -> None:
    model = tiny_model("llama")
    place = save_tiny_adapter(tmp_path / "adapter", model, 4, "state")
    with pytest.raises(ValueError, match=r"the exit layer must be in 1..3 for a model of 4 layers .*, got 4"):
        load(model, drafter="exit_adapter", drafter_options={"adapter": str(place)})


def test_a_path_without_an_adapter_is_refused(tmp_path: Path) -> None:
    model = tiny_model("llama")
    with pytest.raises(ModelNotFound, match="no exit adapter at"):
        load(model, drafter="exit_adapter", drafter_options={"adapter": str(tmp_path / "none")})
    with pytest.raises(UnsupportedOption, match="needs option 'adapter'"):
        load(model, drafter="exit_adapter")
    place = save_tiny_adapter(tmp_path / "adapter", model, 2, "state")
    (place / "adapter.safetensors").write_bytes(b"half")
    with pytest.raises(InvalidModelFile, match="holds no exit adapter that can be read"):
        load(model, drafter="exit_adapter", drafter_options={"adapter": str(place)})

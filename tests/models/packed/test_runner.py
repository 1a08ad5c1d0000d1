"""Runners: what they share with the model that they were given, and that they leave it alone."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import LlamaForCausalLM

from forerun import load
from forerun.core.values import ROOT
from forerun.errors import UnsupportedModel, UnsupportedOption
from forerun.families.small import small_model
from forerun.models.loading.load import open_model
from forerun.models.packed.forward import Packed, Part
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.request import Request
from forerun.models.packed.runner import HFRunner, gather, layout, only
from forerun.models.packed.sequence import Sequence
from forerun.models.packed.store import LayerStore
from forerun.testing import FAMILIES, VOCABULARY, tiny_model

from ..running import chain, finish, off, own_logits, text, together


def footprint(model) -> dict[str, object]:
    """Everything about a model object that a runner might touch."""
    return {
        "config": model.config.to_dict(),
        "generation": model.generation_config.to_dict(),
        "attention": [module.config._attn_implementation for module in model.modules() if hasattr(module, "config")],
        "modules": [(name, id(module), module.training) for name, module in model.named_modules()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "parameters": [
            (name, id(p), p.data_ptr(), p._version, p.requires_grad) for name, p in model.named_parameters()
        ],
        "buffers": [(name, id(buffer), buffer.clone().tolist()) for name, buffer in model.named_buffers()],
    }


def use(runner: HFRunner) -> None:
    sequence = Sequence(runner)
    finish(sequence.sync(text(12)))
    finish(sequence.forward([1, 2], plan=LayerPlan.early_exit(2, 4), taps=frozenset({1})))
    finish(sequence.complete([1, 2, 3], chain(3)))
    sequence.keep([0, 1])
    finish(sequence.forward([4], plan=LayerPlan.skip(4, [1], [2])))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("training", [False, True])
def test_the_users_model_stays_as_it_was(family: str, training: bool) -> None:
    model = tiny_model(family).train(training)
    before = footprint(model)
    use(HFRunner(model))
    assert footprint(model) == before


def test_the_users_model_keeps_its_attention_and_says_the_same_as_before() -> None:
    model = tiny_model("gemma2")
    model.set_attn_implementation("eager")
    before = own_logits(model, text(20))
    use(HFRunner(model))
    assert model.config._attn_implementation == "eager"
    assert torch.equal(own_logits(model, text(20)), before)


def test_weights_are_shared_and_not_copied() -> None:
    model = tiny_model("llama")
    runner = HFRunner(model)
    assert [id(p) for p in runner.model.parameters()] == [id(p) for p in model.parameters()]
    ids = text(8)
    before = finish(Sequence(runner).forward(ids)).logits
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    assert torch.allclose(finish(Sequence(runner).forward(ids)).logits, 2 * before)


def test_buffers_and_configuration_are_the_runners_own() -> None:
    model = tiny_model("llama")
    runner = HFRunner(model)
    assert not {b.data_ptr() for b in runner.model.buffers()} & {b.data_ptr() for b in model.buffers()}
    assert runner.model.config is not model.config


def test_a_model_in_training_runs_without_dropout() -> None:
    model = tiny_model("gpt2", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5).train()
    rows = finish(Sequence(HFRunner(model)).forward(text(9)))
    assert off(rows.logits, own_logits(copy.deepcopy(model).eval(), text(9))) < 1e-4


def test_two_runners_of_one_model_do_not_meet() -> None:
    model = tiny_model("llama")
    one, other = HFRunner(model), HFRunner(model)
    use(one)
    assert off(finish(Sequence(other).forward(text(9))).logits, own_logits(model, text(9))) < 1e-4
    use(other)
    assert off(finish(Sequence(one).forward(text(9))).logits, own_logits(model, text(9))) < 1e-4


def test_a_runner_of_a_loaded_model_knows_its_measures() -> None:
    runner = HFRunner(tiny_model("llama"), "mine")
    assert (runner.num_layers, runner.vocab_size, runner.max_length) == (4, VOCABULARY, 256)
    assert (runner.name, runner.dtype, runner.device.type) == ("mine", torch.float32, "cpu")
    assert HFRunner(tiny_model("llama")).name == "LlamaForCausalLM"


def test_the_hidden_states_are_what_the_head_reads() -> None:
    model = tiny_model("llama")
    rows = finish(Sequence(HFRunner(model)).forward(text(9)))
    with torch.no_grad():
        assert torch.allclose(model.lm_head(rows.hidden), rows.logits, atol=1e-5)


def test_final_scales_and_caps_of_the_tail_are_in_the_logits() -> None:
    model = tiny_model("gemma2", final_logit_softcapping=0.7)
    rows = finish(Sequence(HFRunner(model)).forward(text(9)))
    assert rows.logits.abs().max() <= 0.7
    assert off(rows.logits, own_logits(model, text(9))) < 1e-4


def test_every_request_of_a_call_gets_its_own_rows() -> None:
    model = tiny_model("llama")
    runner = HFRunner(model)
    texts = [text(length, seed=length) for length in (5, 1, 9)]
    answers = together(*(Sequence(runner).forward(ids, taps=frozenset({1})) for ids in texts))
    for ids, rows in zip(texts, answers, strict=True):
        alone = finish(Sequence(runner).forward(ids, taps=frozenset({1})))
        assert rows.logits.shape == (len(ids), VOCABULARY)
        assert off(rows.logits, own_logits(model, ids)) < 1e-4
        assert off(rows.hidden, alone.hidden) < 1e-4
        assert off(rows.taps[1], alone.taps[1]) < 1e-4


def request(runner: HFRunner, committed: int, depths: list[int], first: int, n: int, want: int) -> Request:
    return Request(runner, tuple(range(10, 10 + n)), Part(LayerStore(4, 8), committed, first, n, depths), want)


def test_the_layout_lists_tokens_positions_and_wanted_rows() -> None:
    runner = HFRunner(tiny_model("llama"))
    requests = [
        request(runner, 5, [0, 1, 1, 2], 1, 3, 2),
        request(runner, 0, [0, 1], 0, 2, 0),
        request(runner, 7, [0], 0, 1, 1),
    ]
    ids, positions, wanted = layout(requests, torch.device("cpu"))
    assert ids.tolist() == [10, 11, 12, 10, 11, 10]
    assert positions.tolist() == [6, 6, 7, 0, 1, 7]
    assert wanted.tolist() == [1, 2, 5]


def test_gathering_hands_taps_of_all_rows_and_logits_of_the_wanted_ones() -> None:
    runner = HFRunner(tiny_model("llama"))
    requests = [request(runner, 0, [0, 1, 2], 0, 3, 1), request(runner, 0, [0, 1], 0, 2, 2)]
    packed = Packed([one.part for one in requests], hidden={1: torch.arange(5)[:, None]})
    values = torch.tensor([[2.0], [3.0], [4.0]])
    first, second = gather(values * 10, values, packed, requests)
    assert (first.logits.tolist(), second.logits.tolist()) == ([[2]], [[3], [4]])
    assert (first.hidden.tolist(), second.hidden.tolist()) == ([[20]], [[30], [40]])
    assert (first.taps[1].tolist(), second.taps[1].tolist()) == ([[0], [1], [2]], [[3], [4]])


def test_a_post_norm_opt_runs_whole_and_refuses_plans() -> None:
    model = tiny_model("opt", do_layer_norm_before=False)
    runner = HFRunner(model)
    assert off(finish(Sequence(runner).forward(text(9))).logits, own_logits(model, text(9))) < 1e-4
    runner.check_plan(FULL)
    for plan in (LayerPlan.early_exit(2, 4), LayerPlan.skip(4, mlp=[1])):
        with pytest.raises(UnsupportedModel, match="normalise after their residual additions"):
            runner.check_plan(plan)


def test_a_runner_that_refuses_plans_names_itself_and_the_way_out() -> None:
    runner = HFRunner(tiny_model("llama"), "mine")
    runner.check_plan(LayerPlan.early_exit(2, 4))
    runner.refuse_plans("its layers do odd things")
    with pytest.raises(UnsupportedModel, match="mine: its layers do odd things; draft with lookup or a draft model"):
        runner.check_plan(LayerPlan.early_exit(2, 4))


def test_a_text_beyond_the_context_is_refused_before_it_reaches_a_batch() -> None:
    runner = HFRunner(tiny_model("llama", max_position_embeddings=8), "mine")
    finish(Sequence(runner).forward(text(8)))
    with pytest.raises(ValueError, match="the text has 9 tokens and mine holds 8; shorten it"):
        Sequence(runner).complete(text(9), range(ROOT, 8)).send(None)


def test_attended_layers_are_counted() -> None:
    runner = HFRunner(tiny_model("llama"))
    assert runner.attended == set()
    finish(Sequence(runner).forward(text(3)))
    assert runner.attended == {0, 1, 2, 3}


class Watched:
    """Counts the rows that the modules below a runner compute."""

    def __init__(self, runner: HFRunner) -> None:
        self.rows: list[int] = []
        runner.model.get_input_embeddings().register_forward_pre_hook(lambda _, args: self.rows.append(args[0].numel()))


def slots(sequence: Sequence) -> list[torch.Tensor]:
    """The committed keys and values of all layers."""
    store = sequence._store
    return [buffer[:, : len(sequence.ids)] for buffers in (store._keys, store._values) for buffer in buffers]


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "mixtral"])
@pytest.mark.parametrize("plan", [FULL, LayerPlan.early_exit(2, 4), LayerPlan.skip(4, [1], [2])])
def test_a_padded_forward_gives_the_same_rows_and_leaves_the_texts_alone(family: str, plan: LayerPlan) -> None:
    model = tiny_model(family)
    one, other = HFRunner(model), HFRunner(model)
    other.padding = lambda rows: max(rows, 4)
    watched = Watched(other)
    plain, padded = Sequence(one), Sequence(other)
    for sequence in (plain, padded):
        finish(sequence.sync(text(40)))
    before = [slot.clone() for slot in slots(padded)]
    rows, same = (finish(s.forward([7], plan=plan, taps=frozenset({1}))) for s in (plain, padded))

    assert watched.rows == [40, 4]
    assert same.logits.shape == rows.logits.shape == (1, VOCABULARY)
    assert same.taps[1].shape == rows.taps[1].shape
    assert off(same.logits, rows.logits) < 1e-4
    assert off(same.hidden, rows.hidden) < 1e-4
    assert off(same.taps[1], rows.taps[1]) < 1e-4
    assert padded.scratch == (7,)
    assert padded.ids == text(40)
    assert all(torch.equal(a, b) for a, b in zip(slots(padded), before, strict=True))


def test_rows_that_resume_and_rows_of_several_texts_are_padded_as_one_forward() -> None:
    model = tiny_model("llama")
    runner = HFRunner(model)
    watched = Watched(runner)
    sequences = [Sequence(runner), Sequence(runner)]
    runner.padding = lambda rows: {2: 3, 4: 6}.get(rows, rows)
    together(*(sequence.sync(text(9)) for sequence in sequences))
    together(*(sequence.forward([3], plan=LayerPlan.early_exit(2, 4)) for sequence in sequences))
    answers = together(*(sequence.complete([3, 5], chain(2)) for sequence in sequences))
    assert watched.rows == [18, 3, 6]
    for rows in answers:
        assert off(rows.logits, own_logits(model, [*text(9), 3, 5])[-2:]) < 1e-4


@pytest.mark.parametrize("padding", [lambda rows: rows, lambda rows: 1])
def test_padding_never_takes_rows_away(padding: object) -> None:
    runner = HFRunner(tiny_model("llama"))
    runner.padding = padding
    watched = Watched(runner)
    assert finish(Sequence(runner).forward(text(3))).logits.shape[0] == 3
    assert watched.rows == [3]


def test_greedy_text_stays_the_same_with_padding() -> None:
    engine = load(tiny_model("llama"), drafter="self", drafter_options={"exit_layer": 2})
    prompts = [text(7), text(20, seed=1)]
    before = [result.ids for result in engine.generate(prompts, max_new_tokens=24)]
    engine.runner.padding = lambda rows: max(rows, 5)
    assert [result.ids for result in engine.generate(prompts, max_new_tokens=24)] == before
    assert [engine.generate(prompt, max_new_tokens=24).ids for prompt in prompts] == before


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text", "opt"])
def test_its_embedding_and_head_are_the_models(family: str) -> None:
    model = tiny_model(family)
    runner = HFRunner(model)
    ids = torch.tensor([3, 96, 3])
    assert torch.equal(runner.embed(ids), model.get_input_embeddings().weight[ids])
    rows = finish(Sequence(runner).forward(text(9)))
    assert off(runner.head(rows.hidden), rows.logits) < 1e-5


def test_it_has_no_restricted_head() -> None:
    runner = HFRunner(tiny_model("llama"))
    with pytest.raises(
        UnsupportedOption, match=r"has no restricted head 'vocabulary 1'; carving needs the lean runner"
    ):
        runner.head(torch.zeros(1, 32), "vocabulary 1")
    with pytest.raises(UnsupportedOption, match="whose head is whole; carving needs the lean runner"):
        runner.add_head([1, 2])


def test_a_model_that_gives_all_rows_whatever_is_asked_for_is_read_at_the_wanted_ones() -> None:
    """Whisper's decoder takes no logits_to_keep; neither do many models with code of their own."""
    model = small_model("whisper")
    runner = open_model(model).runner
    texts = [text(9), text(21, seed=1)]
    answers = together(*(Sequence(runner).sync(ids) for ids in texts))
    for ids, rows in zip(texts, answers, strict=True):
        assert off(rows.logits, own_logits(model, ids)[-1:]) < 1e-4
        assert off(runner.head(rows.hidden), rows.logits) < 1e-4


class AllRows(LlamaForCausalLM):
    """As code that comes with a checkpoint may be."""

    def forward(self, input_ids: torch.Tensor, logits_to_keep: object = None, **others: object) -> object:
        return super().forward(input_ids=input_ids, **others)


def test_the_text_of_such_a_model_is_its_own() -> None:
    llama = tiny_model("llama")
    model = AllRows(llama.config).eval()
    model.load_state_dict(llama.state_dict())
    prompts = [text(9), text(21, seed=1)]
    expected = [result.ids for result in load(llama).generate(prompts, max_new_tokens=12)]
    for drafter in ("none", "lookup"):
        results = load(model, drafter=drafter).generate(prompts, max_new_tokens=12)
        assert [result.ids for result in results] == expected


@pytest.mark.parametrize(("rows", "kept"), [([0, 1, 2], [1]), ([1], [1])])
def test_only_wanted_rows_are_kept_of_all_or_of_the_wanted_ones(rows: list[int], kept: list[int]) -> None:
    assert only(torch.tensor([1]), torch.tensor(rows), 3).tolist() == kept


def test_a_model_whose_sublayers_are_not_known_runs_and_skips_nothing() -> None:
    runner = open_model(small_model("bert")).runner
    with pytest.raises(UnsupportedModel, match="BertLayer has no MLP under any of the names"):
        HFRunner(small_model("bert")).check_plan(LayerPlan.early_exit(1, 4))
    with pytest.raises(UnsupportedModel, match="draft with lookup or a draft model"):
        runner.check_plan(LayerPlan.early_exit(1, 4))


def test_activations_are_refused_where_there_are_no_native_products() -> None:
    runner = HFRunner(tiny_model("llama"), "mine")
    assert runner.activations is None
    for asked in (lambda: runner.use_activations(8), lambda: runner.check_plan(LayerPlan(activations=16))):
        with pytest.raises(UnsupportedOption, match="in the native step alone, and mine doesn't run there; leave"):
            asked()

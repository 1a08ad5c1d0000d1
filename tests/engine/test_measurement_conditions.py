from __future__ import annotations

import torch

import forerun
from forerun.engine.measurement_conditions import conditions
from forerun.testing import tiny_model


def test_conditions_name_all_that_a_figure_depends_on() -> None:
    engine = forerun.load(tiny_model("llama"))
    told = conditions(engine, "forerun compare tiny")

    assert told["command"] == "forerun compare tiny"
    assert told["model"] == engine.name
    assert (told["dtype"], told["device"]) == ("float32", "cpu")
    assert told["threads"] == torch.get_num_threads()
    assert told["versions"]["torch"] == torch.__version__
    assert set(told["versions"]) == {"forerun", "torch", "transformers"}
    assert told["hardware"]
    assert told["padded"] is False


def test_padding_is_a_condition() -> None:
    engine = forerun.load(tiny_model("llama"))
    engine.runner.padding = lambda rows: max(rows, 2)

    assert conditions(engine, "")["padded"] is True

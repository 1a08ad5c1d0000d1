from __future__ import annotations

import torch

from forerun.engine.hardware import hardware


def test_a_machine_has_a_name() -> None:
    assert hardware()
    assert hardware(torch.device("cpu")) == hardware()

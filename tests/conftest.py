"""One thread a test process: the suite runs several, and tiny models gain nothing from more. Nothing learnt is kept."""

from __future__ import annotations

import os

import torch

os.environ["FORERUN_LEARNED"] = "off"

torch.set_num_threads(1)

"""One thread a test process: the suite runs several, and tiny models gain nothing from more."""

from __future__ import annotations

import torch

torch.set_num_threads(1)

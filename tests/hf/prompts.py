"""What the hook's tests hand to generate: one prompt, and three of different lengths with padding on the left."""

from __future__ import annotations

import torch

PROMPT = torch.tensor([[5, 6, 7, 5, 6, 8, 5, 6]])
BATCH = torch.tensor([[5, 6, 7, 5, 6, 8, 5, 6], [0, 0, 0, 9, 4, 9, 4, 9], [0, 0, 0, 0, 0, 0, 0, 33]])
MASK = torch.tensor([[1] * 8, [0] * 3 + [1] * 5, [0] * 7 + [1]])
PAD = 0
ENDS = [3, 18, 58]
PADDED = {"input_ids": BATCH, "attention_mask": MASK, "pad_token_id": PAD}

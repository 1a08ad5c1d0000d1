"""Random numbers keyed by their purpose, never taken from a running stream.

A number depends only on the seed, the absolute position of the token and the purpose. So the text doesn't depend on how many
numbers a policy or a rejected draft used, and a request gives the same text alone and in a batch.
"""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from typing import final

from .law import Law, PointMass


class Chance(ABC):
    """The random decisions of one request, each from a number of its own."""

    @abstractmethod
    def uniform(self, purpose: bytes, *key: int) -> float:
        """A number in [0, 1), the same for an equal purpose and key, independent for any other."""

    @final
    def accept(self, ratio: float, position: int, sibling: int) -> bool:
        """True with probability min(1, ratio): whether the node's child `sibling` is accepted as the token at position.

        The comparison is strict, since the number may be 0 and a token of probability 0 must not be accepted.
        """
        return self.uniform(b"accept", position, sibling) < ratio

    @final
    def draw(self, law: Law, position: int) -> int:
        """The target's own token at position. Plain decoding and verification share this draw."""
        return law.token if isinstance(law, PointMass) else law.quantile(self.uniform(b"token", position))

    @final
    def propose(self, law: Law, position: int, start: int, sibling: int = 0) -> int:
        """A draft token for position, in the round that began when `start` tokens were known.

        sibling numbers all the tokens that a round drafts for one position, whatever their parents. The round is part of
        the key: a position that is drafted again after a rejection must not reuse the old number, since a policy may have
        adapted to the token that it gave.
        """
        if isinstance(law, PointMass):
            return law.token
        return law.quantile(self.uniform(b"draft", position, start, sibling))


@final
class Seeded(Chance):
    """Chance from a 64-bit seed; the same on every machine."""

    __slots__ = ("seed",)

    def __init__(self, seed: int) -> None:
        self.seed = seed % 2**64

    def uniform(self, purpose: bytes, *key: int) -> float:
        """53 random bits, a hash of seed, purpose and key."""
        message = struct.pack(f"<Q{len(key)}q", self.seed, *key)
        digest = hashlib.blake2b(message, digest_size=8, person=purpose).digest()
        return float((int.from_bytes(digest, "little") >> 11) * 2.0**-53)

"""LayerSkip's schedules (arXiv 2404.16710): how often a layer is dropped, and how much each exit's loss counts.

Layers are numbered from 0; step t runs from 0 to steps - 1. A layer's dropout rate is S(t) D(l) p_max: it doubles its way up
over the layers, from 0 at the first to p_max at the last. An exit's loss counts e(l), which grows with the square of the
depth, and only at steps where the curriculum has it on. The last layer is always on.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import UnsupportedOption

CURRICULA = ("all", "rotational", "gradual")
TIMES = ("constant", "exponential")


def depth_rate(layer: int, num_layers: int) -> float:
    """D(l) = 2^(l / (L - 1)) - 1: 0 for the first layer, 1 for the last."""
    return float(2 ** (layer / max(1, num_layers - 1)) - 1)


def time_rate(step: int, steps: int, time: str) -> float:
    """S(t): 1 throughout, or, for training from scratch, 2^(t / (T - 1)) - 1: from 0 at the first step to 1 at the last."""
    if time not in TIMES:
        raise UnsupportedOption(f"unknown time schedule {time!r}; known: {', '.join(TIMES)}")
    if time == "constant":
        return 1.0
    return float(2 ** (step / max(1, steps - 1)) - 1)


def dropout_rates(step: int, steps: int, num_layers: int, p_max: float, time: str = "constant") -> tuple[float, ...]:
    """p(l, t) of every layer at a step."""
    now = time_rate(step, steps, time) * p_max
    return tuple(now * depth_rate(layer, num_layers) for layer in range(num_layers))


def exit_scale(layer: int, num_layers: int, e_scale: float) -> float:
    """e(l): e_scale times the sum of the numbers up to l; the last layer has L - 1 and the share of those before it."""
    last = num_layers - 1
    if layer == last:
        return last + e_scale * (last - 1) * last / 2
    return e_scale * layer * (layer + 1) / 2


def enabled(layer: int, step: int, steps: int, num_layers: int, curriculum: str, rotation: int) -> bool:
    """C(t, l): whether an exit is on. rotation is R, every how many layers and how many steps; it counts in rotational only.

    Gradual switches exits on from the last down to the first, one more every T / 2L steps.
    """
    if curriculum not in CURRICULA:
        raise UnsupportedOption(f"unknown curriculum {curriculum!r}; known: {', '.join(CURRICULA)}")
    below_last = num_layers - 1 - layer
    if below_last == 0 or curriculum == "all":
        return True
    if curriculum == "rotational":
        return (layer - step) % rotation == 0
    return below_last * steps <= 2 * num_layers * step


def exit_weights(
    step: int, steps: int, num_layers: int, e_scale: float, curriculum: str = "all", rotation: int = 1
) -> Mapping[int, float]:
    """w(t, l) of the exits that count at a step, by layer; they sum to 1. An exit reads the state after its layer."""
    scales = {
        layer: exit_scale(layer, num_layers, e_scale)
        for layer in range(num_layers)
        if enabled(layer, step, steps, num_layers, curriculum, rotation)
    }
    total = sum(scales.values())
    if total == 0:
        return {num_layers - 1: 1.0}
    return {layer: scale / total for layer, scale in scales.items() if scale > 0}

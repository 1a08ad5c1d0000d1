"""A design made by hand, for what tells and shows it."""

from __future__ import annotations

from forerun.core.cost import Cost, Point
from forerun.design.acceptance import estimate_from
from forerun.design.candidates import Candidate, CandidateOnLog
from forerun.design.log import DraftOnLog
from forerun.design.run import Design, Trained, Untrained
from forerun.design.shape_costs import compare_shapes
from forerun.design.shapes import Size
from forerun.design.throughput import DraftTimes, Loop, Overhead, Prediction
from forerun.models.files.draft_shape import DraftShape

TARGET = DraftShape(30, 576, 1536, 9, 3, 49152)
SIZE = Size(layers=3_000_000, whole=31_300_000, read=7_700_000, megabytes=29.6)


def cost(*points: tuple[int, float]) -> Cost:
    return Cost("m", "LeanRunner", "int4", "full", tuple(Point(rows, 192, ms) for rows, ms in points))


def untrained(layers: int, speedup: float, width: int = 576, vocabulary: int = 8192) -> Untrained:
    return Untrained(
        shape=DraftShape(layers, width, 1536, 9, 3, vocabulary),
        size=SIZE,
        times=DraftTimes(cost((1, layers + 0.1), (4, layers + 0.4)), float(layers)),
        covered=0.9,
        acceptance=0.55,
        prediction=Prediction(3, 2.1, 90 * speedup, speedup),
        break_even=0.31,
        for_goal=None,
    )


def trained(name: str, speed: float, perplexity: float | None) -> Trained:
    shape = DraftShape(4, 576, 1536, 9, 3, 49152)
    times = DraftTimes(cost((1, 1.0)), 1.0)
    on_log = CandidateOnLog(DraftOnLog(((True, False),), None), perplexity)
    prediction = Prediction(2, 1.5, speed, speed / 90)
    return Trained(Candidate(f"runs/{name}"), shape, SIZE, times, on_log, prediction)


def designed(shapes: tuple[Untrained, ...] = (), candidates: tuple[Trained, ...] = ()) -> Design:
    rows = [(one.shape, one.size.read, one.times.later) for one in shapes]
    return Design(
        prefix=192,
        loop=Loop(cost((1, 10.0), (4, 12.0)), 10.0, Overhead(0.4, 0.1, 0.05)),
        estimate=estimate_from([]),
        shapes=shapes,
        candidates=candidates,
        shape_costs=compare_shapes(rows, rows),
    )

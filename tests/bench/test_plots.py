from pathlib import Path
from typing import Any

import pytest

from forerun import plotting
from forerun.bench.interleaving import measure_interleaved
from forerun.bench.plots import write_plots
from forerun.bench.report import report_of
from forerun.bench.suite import Item
from forerun.engine.prompts.questions import Question
from forerun.errors import UnsupportedOption

from .samples import Scripted

pytest.importorskip("matplotlib")
PNG = b"\x89PNG\r\n\x1a\n"


def report(*names: str) -> dict[str, Any]:
    backends = [Scripted(name, 0.1 * (number + 1)) for number, name in enumerate(names)]
    items = [Item(str(number), kind, Question(("?",))) for number, kind in enumerate(("qa", "rag", "math"))]
    prompts = [[1], [2], [3]]
    return report_of(measure_interleaved(backends, prompts, 8), backends, items, prompts)


def test_a_report_becomes_three_pictures(tmp_path: Path) -> None:
    written = write_plots(report("plain", "lookup", "self"), tmp_path / "new" / "plots")
    assert [path.name for path in written] == ["speedup.png", "tokens_per_round.png", "time.png"]
    for path in written:
        assert path.read_bytes().startswith(PNG)
        assert path.stat().st_size > 5000


def test_plain_decoding_alone_has_no_speedup_to_show(tmp_path: Path) -> None:
    assert "speedup.png" not in [path.name for path in write_plots(report("plain"), tmp_path)]


def test_a_peer_without_statistics_is_only_in_the_speedups(tmp_path: Path) -> None:
    told = report("plain", "peer:lookup")
    for method in told["methods"]:
        method["acceptance"] = method["seconds"] = None
    assert [path.name for path in write_plots(told, tmp_path)] == ["speedup.png"]


def test_a_method_without_a_speedup_in_a_category_is_drawn_without_that_bar(tmp_path: Path) -> None:
    told = report("plain", "lookup")
    told["methods"][1]["categories"]["qa"]["speedup"] = None
    assert (tmp_path / "speedup.png") in write_plots(told, tmp_path)


def test_bars_stand_for_the_measured_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = report("lookup", "plain")
    drawn: list[list[float]] = []
    from matplotlib.axes import Axes

    bar = Axes.bar

    def watching(self: Axes, *args: Any, **kwargs: Any) -> Any:
        drawn.append(list(args[1]) if args else [])
        return bar(self, *args, **kwargs)

    monkeypatch.setattr(Axes, "bar", watching)
    write_plots(told, tmp_path)
    assert drawn[0] == [2.0, 2.0, 2.0, 2.0]


def test_without_matplotlib_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plotting, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedOption, match="matplotlib"):
        write_plots(report("plain"), tmp_path)

"""What a server's flags come to."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.cli.serve.server_flags import KEY_VARIABLE, SERVER, is_local, settings_of
from forerun.serve.settings import Settings


def made(**given: Any) -> Settings:
    return settings_of("models/small", {**{one.name: one.default for one in SERVER}, **given})


def test_the_model_is_called_by_the_last_part_of_its_path() -> None:
    assert made().name == "small"
    assert made(served_name="other").name == "other"


def test_a_local_server_has_local_names_and_remembers() -> None:
    local = made(allow_host=["desk.example"])

    assert local.hosts == ("localhost", "127.0.0.1", "::1", "127.0.0.1", "desk.example")
    assert local.remember
    assert not made(remember=False).remember


def test_a_server_for_others_shares_no_text_unless_told_to() -> None:
    public = made(host="0.0.0.0")

    assert public.hosts is None
    assert not public.remember
    assert made(host="0.0.0.0", remember=True).remember


def test_the_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert made().api_key is None
    monkeypatch.setenv(KEY_VARIABLE, "from outside")
    assert made().api_key == "from outside"
    assert made(api_key="given").api_key == "given"


@pytest.mark.parametrize(
    "given", [{"port": 70000}, {"patience": -1.0}, {"max_running": 0}, {"prefill_rows": 0}, {"max_waiting": -1}]
)
def test_a_number_out_of_range_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        made(**given)


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("a.example", False)],
)
def test_only_loopback_is_local(host: str, local: bool) -> None:
    assert is_local(host) == local

"""How a server is set up."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """name: what the model is called in requests. api_key: what clients must show, None for no check.

    most_running requests share forwards, most_waiting more may wait; beyond that they are refused. most_tokens: the most
    that one answer may have, None for what the context holds; prefill_rows: how many tokens of prompts a forward reads, None
    for what fits the device; most_choices: answers of one request, of all its prompts.
    most_bytes: of a request's body. cors: origins that browsers may call from. hosts: names under which the server may be
    called, None for any. remember: drafters that copy text may keep answers. log_prompts: the log may hold requests' texts.
    version: forerun's.
    """

    name: str
    api_key: str | None = None
    most_running: int = 16
    most_waiting: int = 256
    most_tokens: int | None = None
    most_choices: int = 16
    most_bytes: int = 4 * MIB
    prefill_rows: int | None = None
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    remember: bool = True
    log_prompts: bool = False
    version: str = ""

    def __post_init__(self) -> None:
        for name in ("most_running", "most_choices", "most_bytes", "prefill_rows", "most_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.most_waiting < 0:
            raise ValueError(f"most_waiting must be at least 0, got {self.most_waiting}")
        if self.api_key is not None and not self.api_key:
            raise ValueError("the API key is empty; leave it out for no check")

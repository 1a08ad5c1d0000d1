"""What a line that begins with a slash does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..terminal import note, show_table

if TYPE_CHECKING:
    from .conversation import Conversation, Total

COMMANDS = ("/speculate on|off", "/stats", "/reset", "/quit")


def command_of(line: str, talk: Conversation) -> bool:
    """Do what the line says; whether the conversation goes on."""
    match line.split():
        case ["/quit"]:
            return False
        case ["/reset"]:
            talk.reset()
            note("a new conversation")
        case ["/speculate"]:
            note(f"speculation is {'on' if talk.speculate else 'off'}")
        case ["/speculate", ("on" | "off") as wanted]:
            talk.speculate = wanted == "on"
            note(f"speculation is {wanted}")
        case ["/stats"]:
            _tell(talk)
        case _:
            note(f"unknown command {line!r}; known: {', '.join(COMMANDS)}; a blank before the / sends it as text")
    return True


def _tell(talk: Conversation) -> None:
    rows = [_row(name, talk.totals[kind]) for kind, name in ((True, "drafting"), (False, "plain"))]
    if not any(total.answers for total in talk.totals.values()):
        note("nothing was answered yet")
        return
    show_table(("", "answers", "tokens", "tokens/s", "per round", "accepted", "drafted"), rows)


def _row(name: str, total: Total) -> tuple[str, ...]:
    stats = total.stats
    if not total.answers:
        return (name, "0", *[""] * 5)
    rate = f"{stats.decoded / total.seconds:.1f}" if stats.decoded and total.seconds else ""
    accepted = f"{stats.accepted} ({stats.acceptance:.0%})" if stats.drafted else "0"
    per_round = f"{stats.tokens_per_round:.2f}" if stats.rounds else ""
    return name, str(total.answers), str(stats.tokens), rate, per_round, accepted, str(stats.drafted)

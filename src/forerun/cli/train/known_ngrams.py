"""The tables of n-grams that forerun drafts lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..terminal import show, show_table

if TYPE_CHECKING:
    from ...models.files.known_tables import KnownTable


def show_tables(tables: list[KnownTable]) -> None:
    """A row each, and how to draft with the first."""
    show_table(("table", "for", "what it is", "right on held-out tokens", "from"), [_row(one) for one in tables])
    show(f"Draft with a table: --drafter suffix --ngrams {tables[0].name} (auto asks its model's own by itself)")


def described(one: KnownTable) -> dict[str, Any]:
    """For --json."""
    table = one.table
    return {
        "name": one.name,
        "directory": str(one.directory),
        "source": one.source,
        "bytes": one.nbytes,
        "contexts": len(table.keys),
        "longest": table.longest,
        "target": table.target_name,
        "target_identity": table.target.as_dict(),
        "right": table.right,
        "trained": dict(table.trained),
    }


def _row(one: KnownTable) -> tuple[str, ...]:
    table = one.table
    return (
        one.name,
        table.target_name or table.target.family,
        f"{len(table.keys):,} contexts of up to {table.longest} tokens, {one.nbytes / 1e6:.1f} MB",
        f"{table.right:.2f}",
        one.source,
    )

"""Turns as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from packager.addons.server.refresh.turn import EXPLAINED, HeadTurn
from packager.core.reports.report import Lines, Part, Report, Section, plain_table


def turn_document(turn: HeadTurn) -> dict[str, Any]:
    """Return a turn for programs."""
    return {
        "turn": turn.number,
        "began": turn.began or None,
        "outcome": turn.outcome or None,
        "next_stage": turn.next_stage,
        "failure": turn.failure or None,
        "stages": {name: dict(result) for name, result in turn.results.items()},
    }


def turn_report(turn: HeadTurn) -> Report:
    """Return what a turn found, and how it ended."""
    parts: list[Part] = [Lines(tuple(_turn_lines(turn)), "")]
    checks = turn.results.get("gate", {}).get("checks", ())
    if checks:
        header = ("limit of the gate", "at", "change", "from", "to", "of", "")
        parts.append(
            plain_table(header, [_check_row(one) for one in checks], frozenset(header[1:6]))
        )
    section = Section(key="turn", title=f"Turn {turn.number}", parts=tuple(parts))
    return Report(kind="Draft, refreshed", title=f"turn {turn.number}", sections=(section,))


def turns_report(name: str, turns: Sequence[HeadTurn]) -> Report:
    """Return all turns, a row each."""
    header = ("turn", "began", "conversations", "accepted length", "decided", "ended")
    rows = [_turn_row(one) for one in turns]
    table = plain_table(header, rows, frozenset({"turn", "conversations", "accepted length"}))
    parts: tuple[Part, ...] = (table,) if rows else (Lines(("no turn yet",), ""),)
    section = Section(key="turns", title="Turns", parts=parts)
    return Report(kind="Draft, refreshed", title=name, sections=(section,))


def unit_report(text: str) -> Report:
    """Return the text of a unit as it is."""
    part = Lines(tuple(text.rstrip("\n").split("\n")), "", is_exact=True)
    section = Section(key="unit", title="Unit", parts=(part,))
    return Report(kind="Draft, refreshed", title="unit", sections=(section,))


def _turn_lines(turn: HeadTurn) -> Iterator[str]:
    ended = EXPLAINED[turn.outcome]
    yield f"turn {turn.number}     {turn.outcome or f'before {turn.next_stage}'}: {ended}"
    found = turn.results.get("collect", {})
    if "conversations" in found:
        aside = f"{found['held_out']} of them never trained on"
        yield f"traffic    {found['conversations']} conversations, {aside}"
    if drift := found.get("drift"):
        now = ", ".join(f"{one:.2f}" for one in drift["lengths"]) or "not read yet"
        yield f"accepted   {drift['reference']:.2f} at the roll-out, {now} since"
    if turn.results.get("gate", {}).get("draft_costs") or found.get("drift", {}).get("costs"):
        yield "proposal   no draft is faster at the served concurrency: build with --draft none"
    if turn.failure:
        yield f"failed     {turn.failure}"
    watched = turn.results.get("watch", {})
    if watched.get("reason"):
        yield f"watch      {watched['verdict']}: {watched['reason']}"


def _check_row(check: dict[str, Any]) -> tuple[str, ...]:
    figures = (check["limit"], check["mean"], check["low"], check["high"])
    return (check["name"], *map(_percent, figures), str(check["count"]), check["state"])


def _turn_row(turn: HeadTurn) -> tuple[str, ...]:
    checks = turn.results.get("gate", {}).get("checks", ())
    nothing: dict[str, Any] = {}
    length = next((one for one in checks if one["name"] == "accepted length"), nothing)
    return (
        str(turn.number),
        turn.began,
        str(turn.results.get("collect", {}).get("conversations", "-")),
        _percent(length.get("mean")),
        str(turn.results.get("gate", {}).get("decision", "-")),
        turn.outcome or f"before {turn.next_stage}",
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"

"""A predicted cold start, for people and programs.

In text, what is neither network nor disk is joined: `import` has the container's creation in it,
and `answers` is the way from an initialised engine to the first token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packager.core.reports.report import (
    Column,
    Details,
    Pair,
    Pairs,
    Row,
    Section,
    Table,
    Words,
    number_columns,
)
from packager.core.startup import (
    PHASES,
    Advice,
    PhaseName,
    PredictedPhase,
    PredictedStart,
    StartupPrediction,
)
from packager.core.units import decimal, percent

GUESSED = "~"
UNKNOWN = "?"

NAMES: Mapping[PhaseName, str] = {name: name.replace("_", " ") for name in PHASES}

_COLUMNS: Mapping[str, tuple[PhaseName, ...]] = {
    "pull": ("pull",),
    "unpack": ("unpack",),
    "import": ("container", "import"),
    "weights": ("weights",),
    "compile": ("compile",),
    "answers": ("ready", "first_token"),
}


def startup_document(found: StartupPrediction) -> dict[str, Any]:
    """The prediction as JSON."""
    return found.model_dump(mode="json")


def startup_section(found: StartupPrediction) -> Section:
    """Return the prediction as a table, with what it rests on and what to change next."""
    phases = {
        name: next((phase.words for one in found.nodes if (phase := one.of(name))), "")
        for name in PHASES
    }
    columns = (Column("disk"), *number_columns(*_COLUMNS, "in all"))
    return Section(
        key="startup",
        title="How long a cold start takes",
        parts=(
            Words(where_words(found), label="cold start"),
            Table(
                columns=columns,
                rows=tuple(Row(_cells(one)) for one in found.nodes),
                caption="Predicted, by the node's disk",
                is_right=True,
                indent=2,
            ),
            *(Words(words, "text") for words in sentences(found, brief=True)),
            *(Words(words, "page") for words in sentences(found)),
            Details(
                "What each phase rests on",
                (Pairs(tuple(Pair(NAMES[name], words) for name, words in phases.items())),),
                "page",
            ),
        ),
    )


def where_words(found: StartupPrediction) -> str:
    """Write what the prediction assumes of a node."""
    about = "about " if found.is_base_guessed else ""
    return (
        f"of a node that has nothing: {about}{decimal(found.pull_bytes)} at "
        f"{decimal(found.bandwidth_bytes_s)}/s, containerd's own settings"
    )


def sentences(found: StartupPrediction, *, brief: bool = False) -> Iterator[str]:
    """Yield what a reader must know beside the figures; `brief` leaves out why to change it."""
    if any(phase.basis == "guess" for one in found.nodes for phase in one.phases):
        yield f"{GUESSED} is guessed: `packager bench --startup` measures it"
    yield from found.notes
    yield f"platforms are told to wait {seconds_words(found.allowed_s)} for the server to start"
    starts_by_change: dict[tuple[str, str], list[PredictedStart]] = {}
    for one in found.nodes:
        if one.next is not None:
            starts_by_change.setdefault((one.next.phase, one.next.change), []).append(one)
    for starts in starts_by_change.values():
        first = starts[0].next
        assert first is not None
        names = "; ".join(one.node for one in starts)
        every = len(starts) == len(found.nodes)
        words = brief_words(first) if brief else advice_words(first)
        yield f"{'next' if every else f'next, {names}'}: {words}"


def advice_words(found: Advice) -> str:
    """Write what to change, and why."""
    return (
        f"{found.change} ({NAMES[found.phase]} takes {seconds_words(found.seconds)}, "
        f"{percent(found.share)}: {found.why})"
    )


def brief_words(found: Advice) -> str:
    """Write what to change."""
    return f"{found.change} ({NAMES[found.phase]} is {percent(found.share)})"


def seconds_words(seconds: float) -> str:
    """Write a time with as many digits as it is good for."""
    if seconds >= 600:
        return f"{seconds / 60:.0f} min"
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.1f} s" if seconds >= 0.05 or not seconds else "< 0.1 s"


def _cells(start: PredictedStart) -> tuple[str, ...]:
    return (
        start.node.removeprefix("local "),
        *(_joined([start.of(name) for name in names]) for names in _COLUMNS.values()),
        f"{_mark(start)}{seconds_words(start.seconds)}",
    )


def _joined(phases: list[PredictedPhase | None]) -> str:
    """Write several phases as one; if one is unknown, so is the sum."""
    there = [one for one in phases if one is not None]
    if not there:
        return "–"
    known = [one.seconds for one in there if one.seconds is not None]
    if len(known) < len(there):
        return UNKNOWN
    mark = GUESSED if any(one.basis == "guess" for one in there) else ""
    return f"{mark}{seconds_words(sum(known))}"


def _mark(start: PredictedStart) -> str:
    return GUESSED if any(one.basis == "guess" for one in start.phases) else ""

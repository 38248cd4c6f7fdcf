"""Steps as text and JSON: those to run, those in the cache, those that ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from packager.core.recipe import CacheStatus
from packager.core.units import dollars, gib
from packager.estimate.performance.effort import install_seconds

if TYPE_CHECKING:
    from packager.core.record import RecordedStep


def forecast_documents(forecasts: Iterable[CacheStatus]) -> list[dict[str, Any]]:
    """Return the cache status of each step, as JSON."""
    return [asdict(forecast) for forecast in forecasts]


def forecast_sentences(forecasts: Iterable[CacheStatus]) -> Iterator[str]:
    """Yield a sentence per step: whether it will run, and the time that a hit saves."""
    for one in forecasts:
        yield f"{one.step} with {one.tool}: {_expected(one)}"


def renewal_sentences(forecasts: Iterable[CacheStatus]) -> Iterator[str]:
    """Yield a sentence per cached step: which changes rebuild its result, and which keep it."""
    for one in forecasts:
        if one.inputs:
            renew = [words for group, words in _INPUTS.items() if group in one.inputs]
            keep = [words for group, words in _INPUTS.items() if group not in one.inputs]
            kept = [*(words for words in keep if words in _ASKED_FOR), "the names"]
            yield (
                f"{one.step} is run again by another {_listed(renew, 'or')}; "
                f"{_listed(kept, 'and')} may change"
            )


# Names of a key document's groups, as shown to people.
_INPUTS = {
    "graph": "architecture",
    "weights": "weights",
    "precision": "precision",
    "calibration": "calibration",
    "shape": "shape",
    "parallelism": "parallelism",
    "target": "device",
    "speculation": "speculation",
    "sampling": "sampling",
    "lora": "adapters",
    "computed_on": "computing device",
    "toolchain": "tool version",
    "invocation": "setting of the tool",
}
_NAMED = 5  # differences of the nearest entry; `packager cache explain` has all
_ASKED_FOR = ("shape", "parallelism", "device", "weights")


def _listed(words: list[str], last: str) -> str:
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def _expected(one: CacheStatus) -> str:
    if one.state == "hit":
        saved = f", saves {duration(one.seconds)}" if one.seconds else ""
        larger = ", ".join(
            f"{pointer.rpartition('/')[2]} {value}" for pointer, value in one.effective.items()
        )
        return f"in the cache{f' for {larger}' if larger else ''}{saved} ({one.key[:12]})"
    parts = ["not in the cache" if one.state == "miss" else f"not known yet: {one.reason}"]
    if one.differs:
        more = len(one.differs) - _NAMED
        others = f" and {more} more" if more > 0 else ""
        parts.append(f"the nearest entry differs in {', '.join(one.differs[:_NAMED])}{others}")
    if one.seconds:
        parts.append(f"takes about {duration(one.seconds)} here ({_ORIGINS[one.seconds_from]})")
    elif not one.where_seconds:
        parts.append("how long it takes is not known")
    if one.where and one.where_usd is not None:
        parts.append(
            f"about {duration(one.where_seconds)} and {dollars(one.where_usd)} on {one.where}"
        )
    elif one.where:
        parts.append(f"could run on {one.where}")
    if one.installs:
        parts.append(f"its tool is installed first, about {duration(install_seconds())}")
    return "; ".join(parts)


_ORIGINS = {"past": "from past runs", "estimate": "estimated", "": "estimated"}


def ran_lines(steps: Iterable[RecordedStep]) -> Iterator[str]:
    """Yield a sentence per step of a finished build: the source of its result."""
    for step in steps:
        if step.reused:
            yield f"{step.name}: taken from the cache ({step.key[:12]})"
        else:
            memory = f", {gib(step.peak_memory_bytes)} of memory" if step.peak_memory_bytes else ""
            yield f"{step.name}: {step.tool} ran {duration(step.seconds)}{memory}"


def duration(seconds: float) -> str:
    """Format a duration for people: `8.4 s`, `3 min`, `2.1 h`, `5 days`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:.0f} days"

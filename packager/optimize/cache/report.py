"""Reports of the artifact cache: entries, operations, and explanations of misses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from artifact_cache.fsck import Checked
from artifact_cache.gc import Collected
from artifact_cache.negative import Failure
from artifact_cache.stats import Total
from packager.core.cached import EntryDetails, EntrySummary, Statistics, difference_name
from packager.core.reports.report import (
    Lines,
    Pair,
    Pairs,
    Report,
    Section,
    Words,
    one_section,
    plain_table,
)
from packager.core.text import quoted_lines
from packager.core.units import decimal
from packager.optimize.steps.report import duration

_CACHE = "Artifact cache"
_SHOWN = 12  # digits of a key
_LINES = 20  # differences of one entry; other models differ in most of their fields


def list_report(found: Sequence[EntrySummary], now: float) -> Report:
    """Return a row an entry, and a sum."""
    if not found:
        return one_section(_CACHE, Words("the cache is empty", is_soft=False))
    rows = [
        (
            one.shown,
            one.kind,
            one.model or "-",
            decimal(one.bytes),
            age(now - one.built_at),
            age(now - one.used_at),
            duration(one.build_s) if one.build_s else "-",
            " ".join(word for word, holds in _marks(one) if holds),
        )
        for one in found
    ]
    header = ("key", "kind", "model", "size", "built", "used", "took", "")
    total = sum(one.bytes for one in found)
    summary = Words(f"{entries(len(found))}, {decimal(total)}", is_soft=False)
    return one_section(_CACHE, plain_table(header, rows), summary)


def entries(count: int) -> str:
    """Count entries: `1 entry`, `3 entries`."""
    return "1 entry" if count == 1 else f"{count} entries"


def show_report(shown: EntryDetails, now: float) -> Report:
    """Describe an entry: its kind, origin, files and key document."""
    entry = shown.entry
    signers = ", ".join(one.keyid[:_SHOWN] for one in entry.signatures)
    took = f"; took {duration(entry.build_s)}" if entry.build_s else ""
    writer = entry.writer.builder_id or "unknown builder"
    facts = (
        Pair("key", entry.key),
        Pair("kind", entry.kind),
        Pair("model", entry.labels.get("model", "")),
        Pair(
            "built",
            f"{age(now - entry.built_at)} by {writer}, packager "
            f"{entry.writer.version or '?'}{took}",
        ),
        Pair("used", age(now - shown.used_at)),
        Pair("found in", shown.tier),
        Pair("signed by", signers or "nobody"),
        Pair("pinned by", ", ".join(shown.pins)),
        Pair("refused", shown.refused),
        Pair("size", f"{decimal(entry.total_bytes)} in {len(entry.outputs)} files"),
    )
    files = [(one.path, decimal(one.size), one.sha256[:_SHOWN]) for one in entry.outputs]
    keys = (f"  {pointer}  {_value(value)}" for pointer, value in leaves(entry.keydoc))
    decides = "what decides it"
    return Report(
        kind=_CACHE,
        title=entry.key,
        sections=(
            Section(key="entry", title="The entry", parts=(Pairs(facts),)),
            Section(
                key="files",
                title="Files",
                parts=(plain_table(("file", "size", "sha256"), files),),
            ),
            Section(
                key="key", title="What decides it", heading=decides, parts=(Lines(tuple(keys), ""),)
            ),
        ),
    )


def entry_document(shown: EntryDetails) -> dict[str, Any]:
    """Return an entry as JSON."""
    entry = shown.entry
    return {
        **entry.model_dump(mode="json", by_alias=True),
        "bytes": entry.total_bytes,
        "used_at": shown.used_at,
        "pins": list(shown.pins),
        "tier": shown.tier,
        "signed_by": [one.keyid for one in entry.signatures],
        "refused": shown.refused,
    }


def statistics_document(found: Statistics) -> dict[str, Any]:
    """The counts as JSON."""
    return {**asdict(found), "hit_rate": hit_rate(found.totals)}


def statistics_report(found: Statistics) -> Report:
    """Return the cache's contents and counters, tier by tier."""
    holds = f"{entries(found.entries)}, {decimal(found.bytes)} on the disk"
    pairs = [Pair("place", found.place), Pair("can", found.capability), Pair("holds", holds)]
    for kind, (count, size) in found.by_kind.items():
        pairs.append(Pair("", f"{kind}: {count}, {decimal(size)}"))
    if found.failures:
        pairs.append(Pair("failed", f"{found.failures}; `packager cache failures` shows them"))
    rate = hit_rate(found.totals)
    if rate is not None:
        saved = sum(one.seconds for one in found.totals if one.event == "hit")
        pairs.append(Pair("hits", f"{rate * 100:.0f} % of look-ups, {duration(saved)} saved"))
    rows = [
        (
            one.tier,
            one.kind,
            one.event,
            f"{one.count:,}",
            decimal(one.bytes) if one.bytes else "",
            duration(one.seconds) if one.seconds else "",
        )
        for one in found.totals
    ]
    counted = plain_table(("tier", "kind", "event", "count", "bytes", "time"), rows)
    sections = [Section(key="holds", title="What it holds", parts=(Pairs(tuple(pairs)),))]
    if rows:
        sections.append(Section(key="counts", title="Look-ups and writes", parts=(counted,)))
    return Report(title=_CACHE, sections=tuple(sections))


def hit_rate(totals: Iterable[Total]) -> float | None:
    """The share of look-ups that hit; None when there were none."""
    counts = {"hit": 0, "miss": 0}
    for one in totals:
        if one.event in counts:
            counts[one.event] += one.count
    looked = sum(counts.values())
    return counts["hit"] / looked if looked else None


def checked_document(found: Checked) -> dict[str, Any]:
    """A check as JSON."""
    return {**asdict(found), "sound": found.sound}


def checked_report(found: Checked, seconds: float) -> Report:
    """Return the result of a check."""
    rate = f", {decimal(found.bytes / seconds)}/s" if seconds > 1 else ""
    lines = [
        f"{entries(found.entries)} and {found.blobs} blobs are sound, "
        f"{decimal(found.bytes)} read in {duration(seconds)}{rate}"
    ]
    if found.orphans:
        lines.append(
            f"{len(found.orphans)} blobs ({decimal(found.orphan_bytes)}) belong to no entry; "
            "`packager cache gc` takes them away"
        )
    if found.newer:
        lines.append(f"{found.newer} entries of later versions were left alone")
    if found.refused:
        lines.append(f"{found.refused} entries are not signed by a trusted key, and not used")
    lines += [f"{one.action:<10} {one.what} {one.reason}" for one in found.problems]
    return one_section(_CACHE, Lines(tuple(lines), ""))


def collected_document(found: Collected) -> dict[str, Any]:
    """A collection as JSON."""
    by_model = [
        {"kind": kind, "model": model, "bytes": size}
        for (kind, model), size in found.by_model().items()
    ]
    return {**asdict(found), "by_model": by_model}


def collected_report(found: Collected, now: float) -> Report:
    """Describe what was collected, or would be in a dry run."""
    would = "would go" if found.dry_run else "went"
    rows = [
        (
            one.key[:_SHOWN],
            one.kind,
            one.model or "-",
            decimal(one.bytes),
            age(now - one.used_at),
            "unused for too long" if one.reason == "age" else "to fit the size",
        )
        for one in found.removed
    ]
    sum_ = (
        f"{entries(len(found.removed))} and {decimal(found.bytes)} {would}"
        + (
            f", {decimal(found.orphan_bytes)} of it belonged to no entry"
            if found.orphan_bytes
            else ""
        )
        + (f", {found.litter} leftovers" if found.litter else "")
        + f"; {entries(found.kept_entries)} and {decimal(found.kept_bytes)} stay"
        + (f", {found.pinned_entries} of them pinned" if found.pinned_entries else "")
    )
    table = plain_table(("key", "kind", "model", "size", "used", f"{would} because"), rows)
    lines = [sum_, *([f"not everything was done: {found.problem}"] if found.problem else ())]
    removed = (table,) if rows else ()
    return one_section(_CACHE, *removed, *(Words(words, is_soft=False) for words in lines))


def failures_report(found: Sequence[Failure], now: float) -> Report:
    """Return the recorded failures, and which are not retried for a while."""
    return one_section(_CACHE, Lines(tuple(_failure_lines(found, now)), ""))


def failure_report(one: Failure, now: float) -> Report:
    """Return a failure with its log."""
    lines = (*_failure_lines([one], now), "", *quoted_lines(one.log))
    return one_section(_CACHE, Lines(lines, ""))


def _failure_lines(found: Sequence[Failure], now: float) -> Iterator[str]:
    for one in found:
        until = (
            f"not tried again for {span(one.expires_at - now)}"
            if one.stands(now)
            else "tried again on request"
        )
        yield f"{one.key[:_SHOWN]}  {one.kind}  {age(now - one.failed_at)}, {until}"
        yield f"              {one.reason.splitlines()[0] if one.reason else ''}"
    if not found:
        yield "nothing has failed"


def explanation_lines(found: Mapping[str, Any], now: float) -> Iterator[str]:
    """Yield the result of a look-up, and the nearest entries. Takes `explanation_document`."""
    what = found.get("step") or found.get("document", {}).get("kind", "")
    when = f", {age(now - found['at'])}" if "at" in found else ""
    yield f"{what}: {'hit' if found['hit'] else 'miss'} ({found['key'][:_SHOWN]}{when})"
    if found["fault"]:
        yield f"  what lies there cannot be used: {found['fault']}"
    if failure := found.get("failure"):
        state = "the tool rejected these inputs" if failure["rejected"] else "the last build failed"
        yield f"  {state}: {failure['reason'].splitlines()[0] if failure['reason'] else ''}"
    if found["hit"]:
        return
    if not found["nearest"]:
        yield "  no entry of this kind is in the cache of this machine"
    for one in found["nearest"]:
        yield from neighbour_lines(one, now)


def neighbour_lines(one: Mapping[str, Any], now: float) -> Iterator[str]:
    """Yield the fields in which an entry differs, with both values."""
    model = one["labels"].get("model", "")
    name = f"{one['key'][:_SHOWN]}{f' of {model}' if model else ''}, {age(now - one['built_at'])}"
    count = len(one["differences"])
    yield f"  {name}: {count} {'field differs' if count == 1 else 'fields differ'}"
    shown = one["differences"][:_LINES]
    names = [difference_name(difference["pointer"]) for difference in shown]
    width = max(map(len, names), default=0)
    for name, difference in zip(names, shown, strict=True):
        wanted, there = _value(difference["wanted"]), _value(difference["found"])
        yield f"    {name:<{width}}  requested {wanted}, cached {there}"
    if count > _LINES:
        yield f"    and {count - _LINES} more; --format json has all of them"


def leaves(value: object, pointer: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of a document, without the empty ones."""
    if isinstance(value, Mapping) and value:
        for name in value:
            escaped = str(name).replace("~", "~0").replace("/", "~1")
            yield from leaves(value[name], f"{pointer}/{escaped}")
    elif value not in (None, [], {}):
        yield pointer, value


def age(seconds: float) -> str:
    """Return how long ago something was: `just now`, `5 min ago`, `3 days ago`."""
    return "just now" if seconds < 60 else f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """Return a duration, rounded, with its unit."""
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit or (unit == 60 and seconds >= unit):
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} s"


def _marks(one: EntrySummary) -> tuple[tuple[str, bool], ...]:
    return (("shared", one.shared), ("pinned", one.pinned), ("signed", one.signed))


def _value(value: object) -> str:
    """Write a value of a key document; a digest by its start."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        is_digest = len(value) == 64 and set(value) <= set("0123456789abcdef")
        return f"{value[:_SHOWN]}…" if is_digest else value
    return json.dumps(value, ensure_ascii=False)

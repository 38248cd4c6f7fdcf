"""Report of a draft's measurement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from packager.cli.serving.acceptance import source_words
from packager.core.reports.report import Lines, Part, Report, Section, plain_table
from packager.core.speculation import (
    Acceptance,
    Difference,
    Load,
    Sameness,
    SpeculationReport,
    Speed,
)
from packager.core.units import percent


def draft_report(report: SpeculationReport) -> Report:
    """Return acceptance, speed by concurrency, and whether the answers are identical."""
    against = f", against {report.plain}" if report.plain else ""
    about = (
        f"{report.server}{against}",
        f"{report.samples} prompts of {report.data!r}, up to {report.max_tokens} tokens each",
    )
    same = (
        ["answers     not compared: there is no plain server"]
        if report.sameness is None
        else list(_sameness_lines(report.sameness))
    )
    same += [f"failed      {reason}" for reason in report.failures]
    accepted = Lines(tuple(_acceptance_lines(report.acceptance)), "")
    return Report(
        kind="Draft, measured",
        title=report.server,
        sections=(
            Section(key="about", title="What was measured", parts=(Lines(about, ""),)),
            Section(key="accepted", title="Acceptance", parts=(accepted,)),
            Section(key="speed", title="Speed", parts=tuple(_speed_parts(report.speeds))),
            Section(key="answers", title="Answers", parts=(Lines(tuple(same), ""),)),
        ),
    )


def _acceptance_lines(found: Acceptance | None) -> Iterator[str]:
    if found is None:
        yield "acceptance  nothing tells of it"
        return
    if found.length is None:
        yield f"acceptance  no draft was proposed, {source_words(found.source)}"
        return
    about = "about " if found.is_estimate else ""
    yield f"acceptance  {about}{found.length:.2f} tokens a step, {source_words(found.source)}"
    if found.rate is not None:
        counted = (
            f": {found.accepted_tokens} of {found.draft_tokens} in {found.drafts} drafts"
            if found.drafts is not None
            else ""
        )
        yield f"            {percent(found.rate)} of the proposed tokens taken{counted}"
    if found.by_position:
        yield f"            by position {', '.join(map(percent, found.by_position))}"


def _speed_parts(speeds: Sequence[Speed]) -> Iterator[Part]:
    if any(speed.plain for speed in speeds):
        header: tuple[str, ...] = (
            *("concurrency", "tok/s", "plain", "speed-up"),
            *("TTFT p50", "plain", "TPOT p50", "plain", "TPOT p95", "plain"),
        )
        rows = [_row_of_both(speed) for speed in speeds]
    else:
        header = ("concurrency", "tok/s", "TTFT p50", "TPOT p50", "TPOT p95")
        rows = [_row_of_one(speed) for speed in speeds]
    table = plain_table(header, rows, frozenset(header))
    yield replace(table, is_right=True, indent=2, caption="Speed by requests at once")
    for speed in speeds:
        for name, load in (("", speed.speculative), (" without the draft", speed.plain)):
            if load is not None and load.failed:
                failures = f"  {load.failed} of {load.requests} requests failed at concurrency "
                yield Lines((f"{failures}{speed.concurrency}{name}",), "")


def _row_of_one(speed: Speed) -> tuple[str, ...]:
    load = speed.speculative
    times = (load.ttft_p50_s, load.tpot_p50_s, load.tpot_p95_s)
    return (str(speed.concurrency), f"{load.tokens_per_second:.1f}", *map(_ms, times))


def _row_of_both(speed: Speed) -> tuple[str, ...]:
    one, other = speed.speculative, speed.plain
    return (
        *(str(speed.concurrency), f"{one.tokens_per_second:.1f}"),
        f"{other.tokens_per_second:.1f}" if other else "-",
        f"{speed.speedup:.2f}x" if speed.speedup is not None else "-",
        *(_ms(one.ttft_p50_s), _ms_of(other, "ttft_p50_s")),
        *(_ms(one.tpot_p50_s), _ms_of(other, "tpot_p50_s")),
        *(_ms(one.tpot_p95_s), _ms_of(other, "tpot_p95_s")),
    )


def _sameness_lines(same: Sameness) -> Iterator[str]:
    if not same.compared:
        yield "answers     not compared: no prompt was answered by both"
        return
    yield f"answers     {same.identical} of {same.compared} identical at temperature 0"
    if same.ties:
        yield (
            f"            {same.ties} part at a tie: both tokens are within {same.noise:g} nats of "
            "the plain server's best"
        )
    for found in same.differences:
        token = f", token {found.token}" if found.token is not None else ""
        yield f"            prompt {found.sample} ({found.prompt!r})"
        yield f"              parts at character {found.character}{token}, {_verdict(found)}:"
        yield f"              with     {found.speculative!r}"
        yield f"              without  {found.plain!r}"


def _verdict(found: Difference) -> str:
    if found.verdict == "unknown":
        return "a tie or not (the plain server does not tell)"
    gap = f"{found.gap:.3g} nats apart" if found.gap is not None else "not among the best tokens"
    return f"a {found.verdict} ({gap})"


def _ms_of(load: Load | None, name: str) -> str:
    return _ms(getattr(load, name)) if load else "-"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f} ms"

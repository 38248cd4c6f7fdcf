"""Warm-up for people and programs: what a plan comes to, and what has become of its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from packager.core.reports.report import Lines, Report, Words, one_section, plain_table
from packager.core.text import escape
from packager.core.warmup import Job, Outcome, WarmPlan
from packager.optimize.steps.report import duration

ENDED_WELL = ("there", "built")


def plan_report(plan: WarmPlan) -> Report:
    """Return the jobs with time and price, and what they come to."""
    header = ("job", "step", "model", "needs", "time", "price", "on", "key", "after")
    jobs = (plain_table(header, map(_row, plan.jobs)), Lines(("",))) if plan.jobs else ()
    sums = (_sum(plan), *totals(plan), *(f"note: {note}" for note in plan.notes))
    return one_section("Warm-up", *jobs, *(Words(words, is_soft=False) for words in sums))


def refusal_lines(plan: WarmPlan) -> Iterator[str]:
    """Yield the reason for each request that cannot be planned."""
    for one in plan.refused:
        asked = ", ".join(f"{name}={value}" for name, value in one.request.items())
        yield f"refused: {escape(asked)}"
        yield f"  {escape(one.error)}"
        for found in one.findings:
            yield f"  {found.severity} {found.code}: {escape(found.message)}"
        if one.hint:
            yield f"  hint: {escape(one.hint)}"


def totals(plan: WarmPlan) -> Iterator[str]:
    """Add up time and price; report unknown amounts without guessing."""
    if not plan.jobs:
        return
    timed = [job.seconds for job in plan.jobs if job.seconds is not None]
    priced = [job.usd for job in plan.jobs if job.usd is not None]
    total = f"{duration(sum(timed))} of work" if timed else "no time is known"
    yield f"time: {total}{_without(len(plan.jobs) - len(timed), len(timed), 'an estimate')}"
    cost = f"{_usd(sum(priced))} USD" if priced else "no price is known"
    yield f"price: {cost}{_without(len(plan.jobs) - len(priced), len(priced), 'a price')}"
    if saved := sum(hit.seconds for hit in plan.hits):
        yield f"saved by what is there: {duration(saved)}"


def outcome_report(outcomes: Sequence[Outcome]) -> Report:
    """Count how jobs ended, and name those that failed."""
    counts = Counter(one.state for one in outcomes)
    lines = [", ".join(f"{counts[state]} {state}" for state in sorted(counts)) or "nothing to do"]
    for one in outcomes:
        if one.state not in ENDED_WELL:
            again = f" after {one.tries} tries" if one.tries > 1 else ""
            lines.append(f"{one.state}: job {one.job.index}, {one.job.label}{again}: {one.reason}")
    return one_section("Warm-up", *(Words(words, is_soft=False) for words in lines))


def outcome_document(plan: WarmPlan, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the JSON document of the outcomes."""
    return {
        "schema": 1,
        "counts": dict(Counter(one.state for one in outcomes)),
        "jobs": [
            {
                "index": one.job.index,
                "id": one.job.id,
                "step": one.job.step,
                "model": one.job.model,
                "state": one.state,
                "tries": one.tries,
                "lost": one.lost,
                "exit_code": one.code,
                "reason": one.reason,
                "began_s": one.began_s,
                "ended_s": one.ended_s,
                "work_s": one.work_s,
            }
            for one in outcomes
        ],
        "hits": len(plan.hits),
        "refused": [one.model_dump(mode="json") for one in plan.refused],
    }


def _row(job: Job) -> tuple[str, ...]:
    needs = job.resources
    machine = f"{needs.devices} {needs.device}" if needs.devices else f"{needs.cpus} cpu"
    about = "~" if job.seconds_from == "estimate" else ""
    return (
        str(job.index),
        job.step,
        job.model,
        machine,
        f"{about}{duration(job.seconds)}" if job.seconds is not None else "?",
        _usd(job.usd) if job.usd is not None else "?",
        job.instance or "here",
        job.key[:12] or "later",
        " ".join(map(str, job.needs)),
    )


def _usd(amount: float) -> str:
    return f"{amount:.2f}" if amount >= 0.01 else "< 0.01"


def _sum(plan: WarmPlan) -> str:
    parts = [
        f"{plan.requests} requests",
        f"{len(plan.jobs)} jobs",
        f"{len(plan.hits)} there already",
        f"{plan.duplicates} shared" if plan.duplicates else "",
        f"{plan.idle} with nothing to do" if plan.idle else "",
        f"{len(plan.refused)} refused" if plan.refused else "",
    ]
    return ", ".join(part for part in parts if part)


def _without(missing: int, known: int, what: str) -> str:
    return f", and {missing} jobs without {what}" if missing and known else ""

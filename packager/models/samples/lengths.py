"""Lengths of recorded requests, as a workload.

Rows are those of calibration data (`docs/data.md`), or counts of tokens alone:
`input_length` and `output_length` as in traces, `input_tokens` and `output_tokens`, or
a recorded answer's `usage`.  Tokens of a text without counts are estimated with
`BYTES_PER_TOKEN`, since planning runs no tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from packager.core.errors import NotFound
from packager.core.samples import Sample, Skipped
from packager.core.workload import (
    BYTES_PER_TOKEN,
    LONGEST,
    QUESTIONS,
    Workload,
    estimate_tokens,
)
from packager.models.samples.formats import NotASample, read_row
from packager.models.samples.load import BrokenSamples, read_rows

MOST_ROWS = 2_000_000  # beyond it the distribution does not change any more

# (tokens of the prompt, tokens of the answer) as traces, records and answers name them
COUNTS = (
    ("input_length", "output_length"),
    ("input_tokens", "output_tokens"),
    ("prompt_tokens", "completion_tokens"),
)


def load_workload(
    reference: str, *, download: Callable[[str, str, str | None], Path] | None = None
) -> Workload:
    """Read the requests of a file and return their mean and 95th percentile.

    Rows that are not requests are skipped; raises `BrokenSamples` if no others exist.  If no row
    has an answer, answers have the length of the default workload.
    """
    found = _read(reference, download)
    prompts = [prompt for prompt, _ in found.lengths]
    answers = [answer for _, answer in found.lengths if answer]
    return Workload(
        name=f"{len(prompts):,} requests of {Path(reference).name}",
        input_tokens=max(1, round(fmean(prompts))),
        output_tokens=max(1, round(fmean(answers))) if answers else QUESTIONS.output_tokens,
        p95_input_tokens=max(1, percentile(prompts, 95)),
        p95_output_tokens=max(1, percentile(answers, 95)) if answers else 0,
        source=_source(len(prompts), found.counted, len(answers), found.broken),
    )


def load_lengths(
    reference: str, *, download: Callable[[str, str, str | None], Path] | None = None
) -> tuple[tuple[int, int], ...]:
    """Read the tokens of each prompt and answer of a file; raises as `load_workload`.

    An answer that was not recorded is as long as the mean of those that were, or as that of
    the default workload.
    """
    found = _read(reference, download).lengths
    answers = [answer for _, answer in found if answer]
    mean = max(1, round(fmean(answers))) if answers else QUESTIONS.output_tokens
    return tuple((max(1, prompt), answer or mean) for prompt, answer in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Rows of a file: tokens of prompts and answers, 0 for an answer that was not recorded."""

    lengths: tuple[tuple[int, int], ...]
    counted: int  # rows that state their tokens
    broken: int


def _read(reference: str, download: Callable[[str, str, str | None], Path] | None) -> _Found:
    rows: list[tuple[int, int]] = []
    counted = broken = 0
    first: Skipped | None = None
    for place, value in read_rows(reference, download):
        if len(rows) >= MOST_ROWS:
            break
        try:
            if isinstance(value, NotASample):
                raise value
            lengths = stated_lengths(value)
            row = lengths or estimated_lengths(read_row(value)[1])
        except NotASample as why:
            broken += 1
            first = first or Skipped(place=place, reason=str(why))
            continue
        counted += lengths is not None
        rows.append(row)
    if not rows:
        if first is not None:
            raise BrokenSamples(reference, broken, first, refused=False)
        raise NotFound(f"{reference!r} holds no requests", hint="see docs/data.md for the formats")
    return _Found(lengths=tuple(rows), counted=counted, broken=broken)


def stated_lengths(row: object) -> tuple[int, int] | None:
    """Return the tokens of prompt and answer that a row counts itself; None where it does not."""
    if not isinstance(row, Mapping):
        return None
    response = row.get("response")
    body = response.get("body") if isinstance(response, Mapping) else None
    places = (row, row.get("usage"), response, body)
    usages = [place.get("usage") for place in (response, body) if isinstance(place, Mapping)]
    for place in (*places, *usages):
        if not isinstance(place, Mapping):
            continue
        for names in COUNTS:
            found = [place.get(name) for name in names]
            if all(isinstance(one, int) and not isinstance(one, bool) for one in found):
                prompt, answer = (int(one) for one in found if one is not None)
                if not (0 < prompt <= LONGEST and 0 <= answer <= LONGEST):
                    raise NotASample("its counts of tokens are out of range")
                return prompt, answer
    return None


def estimated_lengths(sample: Sample) -> tuple[int, int]:
    """Estimate the tokens of a sample's prompt and answer; 0 for a missing one."""
    if sample.messages:
        turns = sample.messages
        asked = turns[:-1] if sample.answered else turns
        answer = turns[-1].content if sample.answered else ""
        return estimate_tokens("".join(turn.content for turn in asked)), estimate_tokens(answer)
    if sample.prompt is not None:
        return estimate_tokens(sample.prompt), estimate_tokens(sample.completion or "")
    return estimate_tokens(sample.text or ""), 0


def percentile(numbers: Sequence[int], share: int) -> int:
    """Return the least number that `share` of 100 do not exceed."""
    ordered = sorted(numbers)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def _source(rows: int, counted: int, answers: int, broken: int) -> str:
    words = [f"tokens counted in {counted:,} of {rows:,} rows"]
    if counted < rows:
        words.append(f"estimated as one for {BYTES_PER_TOKEN} bytes of text in the others")
    if not answers:
        words.append("no answers there: those of the default workload")
    if broken:
        words.append(f"{broken:,} rows are not requests")
    return "; ".join(words)

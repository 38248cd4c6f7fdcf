"""Figures of answers: what a load came to, and where answers part."""

from __future__ import annotations

from collections.abc import Sequence

from packager.addons.bench.draft_measure.load import Answered
from packager.addons.bench.draft_measure.ties import Weigh, Weighed, parting
from packager.core.probes import ProbeRequest, ProbeResponse
from packager.core.speculation import Difference, Load, Sameness, Speed, Verdict

_SHOWN = 5  # differences that are kept
_LONGEST = 60  # characters of an answer from where it parts
_FIRST: dict[Verdict, int] = {"difference": 0, "unknown": 1, "tie": 2}  # in which order


def speed(speculative: Answered, plain: Answered | None) -> Speed:
    """Compare two servers under the same load."""
    first = load(speculative)
    second = load(plain) if plain else None
    ratio = None
    if second is not None and second.tokens_per_second and first.tokens_per_second:
        ratio = round(first.tokens_per_second / second.tokens_per_second, 4)
    return Speed(
        concurrency=speculative.concurrency, speculative=first, plain=second, speedup=ratio
    )


def load(done: Answered) -> Load:
    """Add up the answers of a load; failed ones count only as failed."""
    answered = [answer for answer in done.answers if answer and not answer.error]
    tokens = sum(answer.tokens for answer in answered)
    times = [answer.tpot_s for answer in answered if answer.tpot_s is not None]
    return Load(
        requests=len(done.answers),
        failed=len(done.answers) - len(answered),
        output_tokens=tokens,
        seconds=round(done.seconds, 4),
        tokens_per_second=round(tokens / done.seconds, 2) if done.seconds else 0.0,
        ttft_p50_s=_percentile([answer.first_s for answer in answered], 50),
        tpot_p50_s=_percentile(times, 50),
        tpot_p95_s=_percentile(times, 95),
    )


def sameness(
    questions: Sequence[ProbeRequest],
    speculative: Answered,
    plain: Answered,
    weigh: Weigh,
    noise: float,
) -> Sameness:
    """Compare every answer that both servers gave: text, and tokens if both report them."""
    compared = identical = 0
    differences: list[Difference] = []
    pairs = zip(questions, speculative.answers, plain.answers, strict=True)
    for number, (question, ours, theirs) in enumerate(pairs, 1):
        if ours is None or theirs is None or ours.error or theirs.error:
            continue
        compared += 1
        if _are_same(ours, theirs):
            identical += 1
        else:
            differences.append(_difference(number, question, ours, theirs, weigh(ours, theirs)))
    verdicts = [found.verdict for found in differences]
    differences.sort(key=lambda found: _FIRST[found.verdict])
    return Sameness(
        compared=compared,
        identical=identical,
        ties=verdicts.count("tie"),
        unknown=verdicts.count("unknown"),
        noise=noise,
        differences=tuple(differences[:_SHOWN]),
    )


def _are_same(ours: ProbeResponse, theirs: ProbeResponse) -> bool:
    has_ids = bool(ours.token_ids and theirs.token_ids)
    return ours.text == theirs.text and (not has_ids or ours.token_ids == theirs.token_ids)


def _difference(
    number: int,
    question: ProbeRequest,
    ours: ProbeResponse,
    theirs: ProbeResponse,
    weighed: Weighed,
) -> Difference:
    has_ids = bool(ours.token_ids and theirs.token_ids)
    place = parting(ours.text, theirs.text)
    return Difference(
        sample=number,
        prompt=question.shown,
        character=place,
        token=parting(ours.token_ids, theirs.token_ids) if has_ids else None,
        speculative=ours.text[place : place + _LONGEST],
        plain=theirs.text[place : place + _LONGEST],
        verdict=weighed.verdict,
        gap=weighed.gap,
    )


def _percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile, interpolated between the two nearest values."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (ordered[above] - ordered[below]) * (place - below), 6)

"""Load on a server: a fixed number of questions at a time, each sent once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packager.addons.bench.draft_measure.servers import OpenServer
from packager.addons.bench.load.run import run_load
from packager.addons.bench.load.values import Level, LoadPlan, LoadRequest, LoadResult
from packager.core.probes import ProbeRequest, ProbeResponse

_ANSWER_S = 3600.0  # of one answer, to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """All questions under one load. None: the request was not sent, or not answered in time."""

    concurrency: int
    answers: tuple[ProbeResponse | None, ...]  # in the order of the questions
    seconds: float
    metrics: str = ""  # of the server, after it
    lost: str = ""  # why the server stopped answering; "" when it did not


def ask_all(found: OpenServer, questions: Sequence[ProbeRequest], concurrency: int) -> Answered:
    """Send every request, `concurrency` at a time. Raises `KeyboardInterrupt` for an interrupt."""
    run = run_load(
        found.url,
        found.model,
        [LoadRequest(endpoint=one.endpoint, body=one.body) for one in questions],
        LoadPlan(
            level=Level(concurrency=concurrency),
            requests=len(questions),
            request_timeout_s=_ANSWER_S,
        ),
        token_ids=True,
    )
    if run.cancelled:
        raise KeyboardInterrupt
    answers: list[ProbeResponse | None] = [None] * len(questions)
    for result in run.results:
        if result.failure != "cancelled":
            answers[result.number] = response_of(result)
    return Answered(
        concurrency=concurrency,
        answers=tuple(answers),
        seconds=run.seconds,
        metrics=run.metrics_after,
        lost=run.lost,
    )


def response_of(result: LoadResult) -> ProbeResponse:
    """Return the result as an answer; one that does not count its tokens is a failure."""
    end_s = result.ended_s - result.sent_s
    reason = result.reason
    if not reason and result.output_tokens is None:
        reason = "it does not count its tokens: the answer has no usage"
    if reason:
        return ProbeResponse(error=reason, first_s=end_s, last_s=end_s)
    times = [chunk.at_s - result.sent_s for chunk in result.chunks] or [end_s]
    return ProbeResponse(
        text=result.text,
        tokens=result.output_tokens or 0,
        token_ids=result.token_ids,
        prompt_token_ids=result.prompt_token_ids,
        chunks=len(result.chunks),
        first_s=times[0],
        last_s=times[-1],
    )

"""Rounds in which the head that serves, a new one and none answer the same prompts.

Each round asks every server every prompt, one at a time and at the served concurrency; the order
of the servers changes with the round.  A round that is whole is kept in a file, so that a killed
measurement goes on with the next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from packager.addons.bench.draft_measure.figures import sameness
from packager.addons.bench.draft_measure.load import Answered, ask_all
from packager.addons.bench.draft_measure.servers import MeasuredServer, Opener, OpenServer
from packager.addons.bench.draft_measure.ties import weigh_with
from packager.addons.bench.statistics import percentile
from packager.addons.server.refresh.gate import HeadComparison, PromptPair, RoundPair
from packager.cli.serving.acceptance import acceptance
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.probes import ProbeRequest, ProbeResponse
from packager.core.speculation import NUMERIC_NOISE, OTHER_NOISE

OLD, NEW, PLAIN = "old", "new", "plain"
_FIRST_S = 95.0  # percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadServers:
    """The servers of a comparison."""

    old: MeasuredServer
    new: MeasuredServer
    plain: MeasuredServer | None  # None where the old one has no draft

    @property
    def named(self) -> Mapping[str, MeasuredServer]:
        found = {OLD: self.old, NEW: self.new}
        return found if self.plain is None else {**found, PLAIN: self.plain}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """Prompts, and the set that each belongs to."""

    questions: tuple[ProbeRequest, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundWork:
    """What every round does."""

    servers: HeadServers
    prompts: PromptSet
    concurrency: int
    opener: Opener
    together: bool  # the servers stay open and are paused in turns
    on_progress: Callable[[str], None]


def compare_heads(work: RoundWork, rounds: int, folder: Path) -> HeadComparison:
    """Measure the rounds that are not in the folder; return all of them."""
    known = rounds_in(folder, rounds)
    missing = [number for number in range(1, rounds + 1) if number not in known]
    if missing:
        with _opened(work) as use:
            for number in missing:
                found = _round(work, number, use)
                with explain_disk_errors(folder):
                    folder.mkdir(parents=True, exist_ok=True)
                    write_atomically(_place(folder, number), json.dumps(found).encode())
    documents = [one for _, one in sorted(rounds_in(folder, rounds).items())]
    return comparison_of(documents, work.prompts.groups)


def rounds_in(folder: Path, rounds: int) -> dict[int, dict[str, Any]]:
    """Return the rounds that are kept, by their number."""
    found = {}
    for number in range(1, rounds + 1):
        with suppress(FileNotFoundError, ValueError):
            found[number] = json.loads(_place(folder, number).read_bytes())
    return found


def comparison_of(documents: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> HeadComparison:
    """Return the figures of rounds: lengths as means of each prompt, speeds as pairs."""
    prompts = []
    for number, group in enumerate(groups):
        lengths = {name: [one["lengths"][name][number] for one in documents] for name in (OLD, NEW)}
        if all(value is not None for values in lengths.values() for value in values):
            old, new = fmean(lengths[OLD]), fmean(lengths[NEW])
            prompts.append(PromptPair(group=group, old=old, new=new))
    pairs = [
        RoundPair(
            concurrency=int(load),
            old_rate=figures[OLD]["rate"],
            new_rate=figures[NEW]["rate"],
            plain_rate=figures[PLAIN]["rate"] if PLAIN in figures else None,
            old_first_s=figures[OLD]["first_s"],
            new_first_s=figures[NEW]["first_s"],
        )
        for one in documents
        for load, figures in one["loads"].items()
    ]
    return HeadComparison(
        prompts=tuple(prompts),
        rounds=tuple(pairs),
        compared=sum(one["compared"] for one in documents),
        different=sum(one["different"] for one in documents),
    )


Use = Callable[[str], Any]  # a context in which a server alone computes


@contextmanager
def _opened(work: RoundWork) -> Iterator[Use]:
    """Yield what opens a server by its name."""
    if not work.together:
        yield lambda name: work.opener.open(work.servers.named[name])
        return
    with ExitStack() as ending:
        found: dict[str, OpenServer] = {}
        for name, server in work.servers.named.items():
            found[name] = ending.enter_context(work.opener.open(server))
            found[name].pause()

        @contextmanager
        def use(name: str) -> Iterator[OpenServer]:
            found[name].resume()
            try:
                yield found[name]
            finally:
                found[name].pause()

        yield use
        for one in found.values():
            one.resume()


def _round(work: RoundWork, number: int, use: Use) -> dict[str, Any]:
    """Measure one round; return its document."""
    names = [*work.servers.named]
    turned = names[number % len(names) :] + names[: number % len(names)]
    alone: dict[str, Answered] = {}
    lengths: dict[str, list[float | None]] = {}
    loads: dict[str, dict[str, Any]] = {"1": {}, str(work.concurrency): {}}
    for name in turned:
        with use(name) as found:
            ask_all(found, work.prompts.questions[:1], 1)  # it is warm then
            alone[name], lengths[name] = _one_at_a_time(found, work.prompts.questions)
            loads["1"][name] = _figures(alone[name])
            if work.concurrency > 1:
                done = ask_all(found, work.prompts.questions, work.concurrency)
                found.check(done.lost)
                loads[str(work.concurrency)][name] = _figures(done)
        rate = loads[str(work.concurrency)][name]["rate"]
        work.on_progress(f"round {number}, {name}: {rate:.1f} tokens/s at {work.concurrency}")
    compared, different = _different(work, alone, use)
    return {
        "lengths": lengths,
        "loads": loads,
        "compared": compared,
        "different": different,
    }


def _one_at_a_time(
    found: OpenServer, questions: Sequence[ProbeRequest]
) -> tuple[Answered, list[float | None]]:
    """Ask each prompt alone; return its accepted length by the server's own count, too."""
    answers: list[ProbeResponse | None] = []
    lengths: list[float | None] = []
    seconds, before = 0.0, found.metrics()
    for question in questions:
        done = ask_all(found, [question], 1)
        found.check(done.lost)
        answer = done.answers[0]
        good = [answer] if answer and not answer.error else []
        measured = acceptance([before, done.metrics], good, good) if good else None
        length = measured.length if measured is not None else None
        # Who counts no drafts has none: a step makes one token, whatever is in a chunk.
        is_plain = measured is not None and (measured.length is None or measured.is_estimate)
        lengths.append(1.0 if is_plain else length)
        answers.append(answer)
        seconds += done.seconds
        before = done.metrics
    return Answered(concurrency=1, answers=tuple(answers), seconds=seconds), lengths


def _figures(done: Answered) -> dict[str, float]:
    good = [one for one in done.answers if one and not one.error]
    tokens = sum(one.tokens for one in good)
    firsts = sorted(one.first_s for one in good)
    return {
        "rate": tokens / done.seconds if done.seconds else 0.0,
        "first_s": percentile(firsts, _FIRST_S) if firsts else 0.0,
    }


def _different(work: RoundWork, alone: Mapping[str, Answered], use: Use) -> tuple[int, int]:
    """Compare the new head's answers with those of no draft; ask about those that part."""
    reference = PLAIN if PLAIN in alone else OLD
    precision = work.servers.old.precision
    noise = NUMERIC_NOISE.get(precision, OTHER_NOISE)
    pairs = zip(alone[NEW].answers, alone[reference].answers, strict=True)
    if all(ours and theirs and ours.text == theirs.text for ours, theirs in pairs):
        return len(alone[NEW].answers), 0
    with use(reference) as plain:
        same = sameness(
            work.prompts.questions,
            alone[NEW],
            alone[reference],
            weigh_with(plain, noise),
            noise,
        )
    return same.compared, same.different


def _place(folder: Path, number: int) -> Path:
    return folder / f"round-{number}.json"

"""Has the model answer what the samples ask, so that heads are trained on what it really says.

Answers of a conversation are given in order, each after those already given.  Samples
of about one length are answered together; such a group is written when it is done, and
is answered whole after an interruption.  Who is in it follows from the samples alone,
and what a sampled answer draws by chance from its sample and the seed.

Parameters: `max_tokens` (of a text), `seed`, `dtype`, `answer_tokens`, `temperature`
(0: the likeliest token each time).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dialogues import Dialogue
from generating import Answer, Asked, Speaker
from journal import Journal
from keeping import job_of
from limits import Limits
from loading import load_config, load_model, load_tokenizer
from packager_worker import Rejected, Report, Spec
from rows import HELD_OUT, TRAIN, load_samples

CUT = "\N{REPLACEMENT CHARACTER}"  # what the first bytes of a character are decoded to


def answer(spec: Spec, report: Report) -> dict[str, Any]:
    """Answer both files; the details count what came of them."""
    place = spec.inputs["samples"]
    files = {name: load_samples(place / name) for name in (TRAIN, HELD_OUT)}
    samples = [sample for found in files.values() for sample in found]
    limits = _limits(spec)
    tokenizer = load_tokenizer(spec.inputs["model"])
    dialogues = [Dialogue(sample, tokenizer, limits.question) for sample in samples]
    groups = limits.groups({at: len(one.question()) for at, one in enumerate(dialogues)})
    journal = Journal(spec.work / "answers.jsonl", job_of(spec, samples))
    missing = groups[len(journal.lines) :]
    if missing:
        with report.busy("loading the model"):
            model = load_model(spec.inputs["model"], spec.parameters["dtype"], spec.gpus)
        answering = _Answering(spec, report, limits, tokenizer, model, sum(map(len, groups)))
        answering.start(sum(map(len, groups[: len(journal.lines)])))
        for group in missing:
            journal.add(answering.answer([dialogues[at] for at in group]))
    answered = {
        at: row
        for group, line in zip(groups, journal.lines, strict=True)
        for at, row in zip(group, line["rows"], strict=True)
    }
    rows = [answered.get(at, one.row()) for at, one in enumerate(dialogues)]
    start = 0
    for name, found in files.items():
        _write(spec.output / name, rows[start : start + len(found)])
        start += len(found)
    return _counts(samples, rows, journal, report)


def _limits(spec: Spec) -> Limits:
    text, most = spec.parameters["max_tokens"], spec.parameters["answer_tokens"]
    stated = getattr(load_config(spec.inputs["model"]), "max_position_embeddings", None)
    context = stated or text + most
    return Limits(text=min(text, context), answer=most, context=context)


class _Answering:
    """Answers groups, and says how it goes on."""

    def __init__(
        self, spec: Spec, report: Report, limits: Limits, tokenizer: Any, model: Any, total: int
    ) -> None:
        self._seed = spec.parameters["seed"]
        self._speaker = Speaker(model, spec.parameters["temperature"])
        self._report = report
        self._limits = limits
        self._tokenizer = tokenizer
        self._done, self._total = 0, total
        self._tokens, self._started = 0, time.monotonic()

    def start(self, done: int) -> None:
        """Go on after some."""
        self._done = done
        if done:
            self._report.note(f"continues after {done} of {self._total} samples")

    def answer(self, group: Sequence[Dialogue]) -> dict[str, Any]:
        """Answer all questions of some samples; what the journal keeps of it is returned."""
        before = self._tokens
        while True:
            questions = {at: one.question() for at, one in enumerate(group)}
            together = self._limits.groups({at: len(ids) for at, ids in questions.items()})
            if not together:
                break
            for some in together:
                asked = [self._asked(group[at], questions[at]) for at in some]
                with self._report.busy("answering"):
                    answers = self._speaker.answer(asked, self._tell)
                for at, answer in zip(some, answers, strict=True):
                    self._tokens += len(answer.ids)
                    group[at].take(self._text(answer))
        self._done += len(group)
        return {
            "rows": [one.row() for one in group],
            "tokens": self._tokens - before,
            "shortened": sum(one.cut and one.row() is not None for one in group),
        }

    def _asked(self, dialogue: Dialogue, question: list[int]) -> Asked:
        said = json.dumps([self._seed, dialogue.place, dialogue.sample], sort_keys=True)
        seed = int.from_bytes(hashlib.sha256(said.encode()).digest()[:7])
        return Asked(ids=question, most=self._limits.room(len(question)), seed=seed)

    def _text(self, answer: Answer) -> str:
        """Give an answer as text; a character that it was cut in goes."""
        text: str = self._tokenizer.decode(answer.ids, clean_up_tokenization_spaces=False)
        return text if answer.ended else text.rstrip(CUT)

    def _tell(self, more: int) -> None:
        """Say how far it is; `more` tokens are not counted yet."""
        seconds = max(1e-3, time.monotonic() - self._started)
        rate = f", {(self._tokens + more) / seconds:.0f} tokens/s" if self._tokens + more else ""
        self._report.progress(f"answering{rate}", self._done, self._total)


def _write(place: Path, rows: Sequence[dict[str, Any] | None]) -> None:
    kept = [row for row in rows if row is not None]
    if not kept:
        raise Rejected(
            f"no sample for {place.name} is answered",
            "give more samples, or shorter ones: a head is trained and measured on answers",
        )
    lines = (json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in kept)
    place.write_text("".join(lines), encoding="utf-8")


def _counts(
    samples: Sequence[dict[str, Any]],
    rows: Sequence[dict[str, Any] | None],
    journal: Journal,
    report: Report,
) -> dict[str, Any]:
    texts = sum("text" in sample for sample in samples)
    dropped = sum(row is None for row in rows)
    if dropped:
        report.note(f"{dropped} of {len(rows)} samples are left out: too long, or not answered")
    return {
        "answered": len(rows) - texts - dropped,
        "texts": texts,  # plain ones, which ask nothing
        "dropped": dropped,
        "shortened": sum(line["shortened"] for line in journal.lines),
        "tokens": sum(line["tokens"] for line in journal.lines),
    }

"""Questions with one right answer each, and what two servers' answers to them tell.

Both servers get the same questions, so what decides are those that one alone answers rightly:
McNemar's exact test, and the interval of a ratio of paired shares.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from packager.core.fields import CommandOption
from packager.core.samples import Sample

TASK_TOKENS = 512
Z95 = 1.959964
MOST_TEXT = 64 * 1024  # characters of an answer that are looked at
_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?", re.ASCII)
_SAID = re.compile(r"(?:####|\\boxed\{|[Aa]nswer(?: is)?:?)")
Verdict = Literal["kept", "missed", "not decided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Settings of questions that are asked through a server's API."""

    tasks: Annotated[
        str,
        Field(
            description="ask both servers questions instead: a file of `{question, answer}` or "
            "`{messages, answer}`, or `arithmetic`; --base and --candidate are images or URLs then"
        ),
        CommandOption(metavar="FILE|NAME"),
    ] = ""
    adapter: Annotated[
        str,
        Field(description="ask this adapter of the candidate, with --tasks, and not its base"),
        CommandOption(metavar="NAME"),
    ] = ""
    base_adapter: Annotated[
        str,
        Field(description="the same of --base: what an adapter loses by a quantized base"),
        CommandOption(metavar="NAME"),
    ] = ""
    min_recovery: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="end with status 7 if the candidate's share of right answers is below "
            "this share of the base's",
        ),
        CommandOption(metavar="SHARE"),
    ] = None
    task_tokens: Annotated[int, Field(ge=1, description="tokens of each of its answers")] = (
        TASK_TOKENS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One question and its right answers."""

    sample: Sample
    answers: tuple[str, ...]


class TaskShare(BaseModel):
    """How one server answered."""

    model_config = ConfigDict(frozen=True)

    server: str
    right: int
    share: float
    share_ci95: tuple[float, float]
    cut: int = Field(description="answers that ended at the limit of tokens")
    failed: int = Field(description="questions without an answer: they count as wrong")


class TaskReport(BaseModel):
    """The right answers of two servers to the same questions."""

    model_config = ConfigDict(frozen=True)

    tasks: str
    questions: int
    base: TaskShare
    candidate: TaskShare
    lost: int = Field(description="questions that the base alone answers rightly")
    gained: int = Field(description="questions that the candidate alone answers rightly")
    changed: int = Field(description="questions that are answered in other words")
    p_value: float = Field(description="McNemar's exact test, of both sides")
    recovery: float | None = Field(description="candidate's share over the base's")
    recovery_ci95: tuple[float, float] | None
    min_recovery: float | None = None
    verdict: Verdict | None = Field(default=None, description="of `min_recovery`, by the interval")
    questions_to_decide: int | None = Field(
        default=None, description="that would decide it, if as many answers change"
    )


def is_right(said: str, answers: Sequence[str]) -> bool:
    """Check an answer: the last number it says where a number is right, else its last line."""
    return any(_matches(said[-MOST_TEXT:], answer) for answer in answers)


def wilson(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    share, square = right / count, Z95**2
    middle = share + square / (2 * count)
    around = Z95 * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    whole = 1 + square / count
    return max(0.0, (middle - around) / whole), min(1.0, (middle + around) / whole)


def mcnemar(lost: int, gained: int) -> float:
    """Return the chance of a split as uneven as this one, if neither side were favoured."""
    count, fewer = lost + gained, min(lost, gained)
    if not count:
        return 1.0
    ways = sum(math.comb(count, one) for one in range(fewer + 1))
    return min(1.0, 2 * (ways / (1 << count)))


def recovery_interval(base: int, candidate: int, changed: int) -> tuple[float, float] | None:
    """Return the 95 % interval of the ratio of right answers, of which `changed` differ."""
    if not base or not candidate:
        return None
    ratio = candidate / base
    around = math.exp(Z95 * math.sqrt(max(1, changed) / (base * candidate)))
    return ratio / around, ratio * around


def judge(interval: tuple[float, float] | None, least: float) -> Verdict:
    """Return the verdict on a recovery: only its whole interval decides."""
    if interval is None:
        return "missed"
    low, high = interval
    return "kept" if low >= least else "missed" if high < least else "not decided"


def needed_questions(report: TaskReport) -> int | None:
    """Return how many questions would decide, or None where none would."""
    least, share = report.min_recovery, report.base.share
    if report.verdict != "not decided" or report.recovery is None or least is None:
        return None
    distance = abs(math.log(report.recovery) - math.log(least))
    differing = max(1, report.lost + report.gained) / report.questions
    if distance < 1e-3:
        return None
    return math.ceil((Z95 / distance) ** 2 * differing / (share * report.candidate.share))


def _matches(said: str, answer: str) -> bool:
    wanted = _number(answer)
    if wanted is not None:
        after = _SAID.split(said)[-1]
        found = _NUMBER.findall(after) or _NUMBER.findall(said)
        return any(_number(one) == wanted for one in (found[:1] if after != said else found[-1:]))
    lines = [line for line in said.splitlines() if line.strip()]
    return bool(lines) and _plain(answer) in (_plain(lines[-1]), _plain(said))


def _number(text: str) -> Decimal | None:
    plain = text.strip().replace(",", "").replace("$", "")
    if not re.fullmatch(r"-?\d{1,40}(?:\.\d{1,40})?", plain, re.ASCII):
        return None
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" .*`\"'").casefold()

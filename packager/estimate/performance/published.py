"""Published speeds of models, and how they correct predictions (`data/published.toml`).

Each set has the points of one model on one kind of server, as somebody started it, and what was
predicted for them from curves alone.  Curves were tuned by those who measured them; published
servers mostly were not, and models differ by their kernels: within a set, published / predicted
is nearly one number.

Times of a model with sets of its own are multiplied by that number, its curves counted twice as
much as they.  Times of a model with neither are multiplied by what is usual of its class: the
engine, the kind of model, the vendor of the devices, and whether attention keeps a latent.  A
factor is the same on all devices of a vendor, in every layout and at every load, so that it turns
no two of them around; how far it carries is said by the band.

First tokens that wait for no other prompt are known from published servers only.  They take
longer than the prompt's work by what a class has in common (`FirstToken`): tokenizing, scheduling,
launching what no graph has recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import Any

from packager.core.share import read_shipped
from packager.estimate.performance.speed_table import Errors, Form, Kind

TABLE = Path(__file__).parent / "data" / "published.toml"

# As many models hold the factor of a class to 1, and that of its latent attention to the class.
CLASS_PULL, LATENT_PULL = 1.0, 2.0
OWN_WEIGHT = 0.9  # of what a model's own sets differ from its class by
CURVES_WEIGHT = 2.0  # of a model's curves, in all that was published of it
MOST_WEIGHT = 0.9  # of all sets, that a band holds
ONE_CLASS = "amd"  # the vendor whose engines and kinds are off alike
CURVES_OF = "nvidia"  # the vendor of all devices with curves

Group = tuple[str, str, str]  # vendor, engine, kind
ClassKey = tuple[str, str, str, bool]  # and whether its models have curves
Own = tuple[Form, str, str]  # model, engine, vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPoint:
    """One published figure and what is predicted for it from curves alone."""

    input_tokens: int
    output_tokens: int
    concurrency: float
    published: float
    predicted: float
    first_ms: float = 0.0  # to the first token, where one request was alone; 0.0: not published
    work_ms: float = 0.0  # predicted for its prompt and one step


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSet:
    """Points of one model, engine, device and layout from one source."""

    source: str
    date: str
    engine: str
    version: str  # "" where the source does not say
    model: str
    form: Form
    kind: Kind
    scheme: str  # of the weights
    latent: bool  # attention keeps a latent
    known: bool  # False: the architecture has layers that the formula does not describe
    device: str
    vendor: str
    tp_degree: int
    expert_parallel: bool
    figure: str  # `tpot_ms`, or `output_tokens_s` of the whole server
    points: tuple[PublishedPoint, ...]

    @property
    def logs(self) -> tuple[float, ...]:
        """Return the logarithms of published / predicted time of each point."""
        sign = 1 if self.figure == "tpot_ms" else -1
        return tuple(sign * log(point.published / point.predicted) for point in self.points)

    @property
    def own(self) -> Own:
        """Return what sets and set-ups of one model share."""
        return (self.form, self.engine, self.vendor)

    @property
    def group(self) -> Group:
        """Return the class."""
        return class_of(self.vendor, self.engine, self.kind)

    @property
    def middle(self) -> float:
        """Return the median of `logs`."""
        return median(self.logs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What times are multiplied by, and the errors that were then still seen."""

    times: float = 1.0
    errors: Errors | None = None  # None without published servers
    spread: Errors | None = None  # of the own points themselves
    own: tuple[PublishedSet, ...] = ()  # of the very model, the nearest; () for its class
    is_here: bool = False  # `own` are of this device
    models: int = 0  # of the class


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQuery:
    """What a correction is for."""

    engine: str
    kind: Kind
    vendor: str
    form: Form
    latent: bool
    has_curves: bool  # the model, with this engine, on any device of the vendor

    @property
    def own(self) -> Own:
        """Return what sets and set-ups of one model share."""
        return (self.form, self.engine, self.vendor)

    @property
    def group(self) -> Group:
        """Return the class."""
        return class_of(self.vendor, self.engine, self.kind)


def class_of(vendor: str, engine: str, kind: str) -> Group:
    """Return which sets apply to each other."""
    return (vendor, "", "") if vendor == ONE_CLASS else (vendor, engine, kind)


def log_factor(sets: Iterable[PublishedSet], asked: PublishedQuery) -> float:
    """Return the logarithm of the factor on times, from these sets."""
    every = tuple(sets)
    usual = 0.0 if asked.has_curves else _log_of_class(every, asked)
    own = own_sets(every, asked)
    if not own:
        return usual
    factor = fmean(one.middle for one in own)
    if asked.has_curves:
        factor /= 1 + CURVES_WEIGHT
    return usual + OWN_WEIGHT * (factor - usual)


def _log_of_class(sets: Iterable[PublishedSet], asked: PublishedQuery) -> float:
    """Return the usual logarithm of other models of the class."""
    alike: dict[Form, list[PublishedSet]] = {}
    for one in sets:
        if one.known and one.form != asked.form and one.group == asked.group:
            alike.setdefault(one.form, []).append(one)
    usual = _held([median(one.middle for one in each) for each in alike.values()], 0.0, CLASS_PULL)
    if not asked.latent:
        return usual
    latent = [each for each in alike.values() if each[0].latent]
    return _held([median(one.middle for one in each) for each in latent], usual, LATENT_PULL)


def _held(values: Sequence[float], prior: float, pull: float) -> float:
    """Return the median of values, held to a prior that is as heavy as `pull` of them."""
    if not values:
        return prior
    return prior + (median(values) - prior) * len(values) / (len(values) + pull)


def own_sets(sets: Iterable[PublishedSet], asked: PublishedQuery) -> tuple[PublishedSet, ...]:
    """Return the sets of the very model with this engine on devices of this vendor."""
    return tuple(one for one in sets if one.own == asked.own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """Relative errors that 9 of 10 points stay below once another of the model was measured."""

    near: float  # on the same server, at most twice or half as many requests of such lengths
    load: float  # on the same server
    layout: float  # on the same devices, in another layout or format
    device: float  # on other devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """How far predictions were off on devices without curves, of models that were left out."""

    models: int
    errors: Errors


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """What a class adds to the work of a first token, and how far off that was."""

    once_s: float
    share: float  # relative error that 9 of 10 first tokens stay below, their model left out
    models: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """All sets, and how far corrected predictions were off."""

    sets: tuple[PublishedSet, ...]
    classes: Mapping[ClassKey, Errors]  # on models that were left out
    remaining: Remaining
    elsewhere: Mapping[tuple[str, Kind], Elsewhere]  # by vendor
    first: Mapping[Group, FirstToken]


@cache
def published_table() -> PublishedTable:
    """Read the shipped table."""
    return parse_published(read_shipped(TABLE))


def parse_published(document: Mapping[str, Any]) -> PublishedTable:
    """Return the table that a document holds."""
    return PublishedTable(
        sets=tuple(_set(row) for row in document["set"]),
        classes=classes_of(document["class"]),
        remaining=Remaining(**document["remaining"]),
        elsewhere=elsewhere_of(document.get("elsewhere", ())),
        first=first_of(document.get("first", ())),
    )


def classes_of(rows: Iterable[Mapping[str, Any]]) -> Mapping[ClassKey, Errors]:
    """Return the errors of classes from the table's rows."""
    return {
        (row["vendor"], row["engine"], row["kind"], row["has_curves"]): Errors(
            tpot=row["tpot"], throughput=row["throughput"]
        )
        for row in rows
    }


def elsewhere_of(rows: Iterable[Mapping[str, Any]]) -> Mapping[tuple[str, Kind], Elsewhere]:
    """Return the errors on devices without curves from the table's rows."""
    return {
        (row["vendor"], row["kind"]): Elsewhere(
            models=row["models"],
            errors=Errors(tpot=row["tpot"], throughput=row["throughput"]),
        )
        for row in rows
    }


def first_of(rows: Iterable[Mapping[str, Any]]) -> Mapping[Group, FirstToken]:
    """Return what classes add to first tokens from the table's rows."""
    return {
        (row["vendor"], row["engine"], row["kind"]): FirstToken(
            once_s=row["once_ms"] / 1e3, share=row["share"], models=row["models"]
        )
        for row in rows
    }


def first_token_of(group: Group) -> FirstToken | None:
    """Return what a class adds to first tokens; None where too little was published."""
    return published_table().first.get(group)


def usual_once_s(vendor: str, kind: Kind) -> float:
    """Return what first tokens take beside their work with other engines, in the mean."""
    rows = published_table().first.items()
    alike = [row.once_s for (of, _, what), row in rows if of == vendor and what in ("", kind)]
    return fmean(alike) if alike else 0.0


def once_ms(sets: Iterable[PublishedSet], group: Group, left_out: Form | None = None) -> float:
    """Return the time that first tokens of a class add to their work, from its models."""
    models: dict[Form, list[float]] = {}
    for one in sets:
        if one.known and one.group == group and one.form != left_out:
            waits = [each.first_ms - each.work_ms for each in one.points if each.first_ms]
            models.setdefault(one.form, []).extend(waits)
    return max(0.0, _held([median(waits) for waits in models.values() if waits], 0.0, CLASS_PULL))


def _set(row: Mapping[str, Any]) -> PublishedSet:
    points = (dict(zip(PublishedPoint.__slots__, point, strict=False)) for point in row["points"])
    return PublishedSet(
        **{name: row[name] for name in PublishedSet.__slots__ if name not in ("form", "points")},
        form=tuple(row["form"]),
        points=tuple(PublishedPoint(**point) for point in points),
    )


@cache
def correction_for(asked: PublishedQuery, device: str, layout: tuple[int, bool, str]) -> Correction:
    """Return how published speeds correct a set-up of one device.

    `layout` has the tensor-parallel degree, whether experts are spread, the weights' scheme.
    """
    table = published_table()
    log_times = log_factor(table.sets, asked)
    own = own_sets(table.sets, asked)
    if not own:
        others = [one for one in table.sets if one.known and one.form != asked.form]
        alike = [one for one in others if one.group == asked.group]
        errors = table.classes.get((*asked.group, asked.has_curves))
        models = len({one.form for one in alike})
        return Correction(times=exp(log_times), errors=errors, models=models)
    here = [one for one in own if one.device == device]
    same = [one for one in here if (one.tp_degree, one.expert_parallel, one.scheme) == layout]
    nearest = tuple(same or here or own)
    left = table.remaining
    least = left.load if same else left.layout if here else left.device
    logs = [[each - log_times for each in one.logs] for one in nearest]
    return Correction(
        times=exp(log_times),
        errors=errors_of(logs, least),
        spread=errors_of(logs),
        own=nearest,
        is_here=bool(here),
    )


def correction_sentence(correction: Correction) -> str:
    """Describe a correction and the points it rests on; "" without one."""
    if correction.times == 1.0:
        return ""
    done = f"times x {correction.times:.2f}"
    if not correction.own:
        models = f"{correction.models} model{'' if correction.models == 1 else 's'}"
        return f"{done}: published servers of {models} of this class, beside tuned ones"
    one = correction.own[0]
    points = sum(len(each.points) for each in correction.own)
    where = f"{one.tp_degree}x{one.device}, {one.source.partition(' ')[0]}, {one.date}"
    also = f" and {len(correction.own) - 1} more" if len(correction.own) > 1 else ""
    version = f" {one.version}" if one.version else ""
    return (
        f"{done}: {points} published point{'' if points == 1 else 's'} of {one.model} "
        f"({one.engine}{version} on {where}{also})"
    )


def errors_of(logs: Iterable[Sequence[float]], least: float = 0.0) -> Errors:
    """Return the errors of sets by what is left of their logarithms; none is below `least`."""
    sets = tuple(logs)
    return Errors(
        tpot=max(least, share_held(sets, lambda left: abs(exp(left) - 1))),
        throughput=max(least, share_held(sets, lambda left: abs(exp(-left) - 1))),
    )


def share_held(sets: Iterable[Sequence[float]], error: Callable[[float], float]) -> float:
    """Return what `MOST_WEIGHT` of all errors stay below, by points and with each set as heavy."""
    known = [one for one in sets if one]
    by_set = [(error(one), 1 / len(logs)) for logs in known for one in logs]
    by_point = [(size, 1.0) for size, _ in by_set]
    return max(_quantile(by_set), _quantile(by_point))


def _quantile(weighed: Iterable[tuple[float, float]]) -> float:
    found = sorted(weighed)
    wanted = MOST_WEIGHT * sum(weight for _, weight in found)
    for size, weight in found:
        wanted -= weight
        if wanted <= 1e-9:
            return size
    return 0.0

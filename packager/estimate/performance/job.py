"""Choice of a step's machine: the instance on which all of it costs the least."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from packager.core.catalog import Accelerator
from packager.core.devices import Gpus, choose_gpus
from packager.core.events import StageEstimate
from packager.core.instance import LOCAL, Instance
from packager.core.recipe import CacheStatus, Step
from packager.core.units import gib
from packager.estimate.performance.effort import (
    PastRun,
    Timing,
    label_of_run,
    machine_for,
    stage_seconds,
    timing_of,
)

LONGEST_S = 5 * 86400.0  # SageMaker: a processing job's MaxRuntimeInSeconds is at most 432,000

AcceleratorOf = Callable[[Instance], Accelerator]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOffer:
    """An instance that holds a step, how long the step takes there and what that costs."""

    instance: Instance
    timing: Timing
    gpus: int = 0  # that the step uses there

    @property
    def usd(self) -> float | None:
        """Return the dollars of the whole job; None while its time or its price is not known."""
        price = self.instance.price_usd_hour
        if price is None or not self.timing.seconds:
            return None
        return self.timing.seconds / 3600 * price


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Inputs of step estimates: this machine, machines for rent, and past runs."""

    here: Instance | None = None  # None: not known
    instances: tuple[Instance, ...] = ()
    accelerator_of: AcceleratorOf
    past: tuple[PastRun, ...] = ()


def with_effort(forecast: CacheStatus, step: Step, market: Market) -> CacheStatus:
    """Add how long the step takes here, and where the whole job costs the least.

    What is in the cache needs neither; its time is what a hit saves.
    """
    if forecast.state == "hit":
        return forecast
    timing = time_here(step, market)
    place = cheapest_place(step, market)
    timed = replace(forecast, seconds=timing.seconds, seconds_from=timing.origin)
    if place is None:
        return timed
    return replace(
        timed,
        where=place_sentence(place, step),
        where_seconds=place.timing.seconds,
        where_usd=place.usd,
    )


def time_here(step: Step, market: Market) -> Timing:
    """Return the step's time on this machine; an empty timing if it lacks the GPUs."""
    here = market.here
    if here is None or step.gpus > (here.devices if here.kind == "nvidia" else 0):
        return Timing()
    return timing_of(step, machine_for(step, here, market.accelerator_of(here)), market.past)


def cheapest_place(step: Step, market: Market) -> MachineOffer | None:
    """Return the machines on which the job costs least; None if none is known to fit.

    A step without GPUs runs on a machine without accelerators: on another they would idle
    and be paid for.  One with GPUs needs as many of NVIDIA, and of one model where its result
    is for it; one that could use GPUs is tried on them too.  Only instances with a price are
    compared, those first that end it in time, then those that leave no GPU idle; where no
    time is known, the price of an hour decides.
    """
    if not step.needs.memory_bytes or step.needs.only_here:
        return None
    places = [
        MachineOffer(instance=one, timing=time_on(one, each, market), gpus=each.gpus)
        for one in market.instances
        for each in _variants(step, one)
        if _holds(one, each)
    ]
    return min(places, key=_rank, default=None)


def label_run(step: Step, market: Market) -> dict[str, str]:
    """Return the label that later estimates compare a run of the step on this machine by."""
    here = market.here
    if here is None:
        return {}
    return label_of_run(step, machine_for(step, here, market.accelerator_of(here)))


def stages_here(step: Step, market: Market) -> tuple[StageEstimate, ...]:
    """Return what each stage of the step takes on this machine, before it is corrected."""
    here = market.here
    machine = machine_for(step, here, market.accelerator_of(here)) if here else None
    if machine is None:
        return ()
    return tuple(
        StageEstimate(stage=work.stage, seconds=stage_seconds(work, machine), units=work.units)
        for work in step.needs.work
    )


def time_on(instance: Instance, step: Step, market: Market) -> Timing:
    """Return how long the step takes on a rented machine."""
    machine = machine_for(step, instance, market.accelerator_of(instance))
    return timing_of(step, machine, market.past)


def place_sentence(place: MachineOffer, step: Step) -> str:
    """Describe which instance it is, what an hour of it costs, and why it was chosen."""
    one, count = place.instance, place.gpus
    word = step.gpu or ("GPUs" if count > 1 else "GPU")
    devices = f" and {count} {word}" if count else ", no GPU is used"
    why = "the cheapest for the whole job" if place.usd is not None else "the cheapest known"
    return (
        f"{one.name} (${one.price_usd_hour:.2f} an hour): {why} with "
        f"{gib(step.needs.memory_bytes)} of memory{devices}"
    )


def _variants(step: Step, one: Instance) -> Iterator[Step]:
    """Yield the step as it is, and with the GPUs of the machine that it could use."""
    yield step
    use = step.gpu_use
    if step.gpus or not use.most or one.kind != "nvidia":
        return
    count = choose_gpus("auto", use, Gpus(count=one.devices, bytes=one.device_bytes))
    if count:
        env = {name: value for name, value in step.env.items() if name != "OMP_NUM_THREADS"}
        yield replace(step, gpus=count, env=env, key=None)


def _holds(one: Instance, step: Step) -> bool:
    if one.name == LOCAL or one.price_usd_hour is None or one.cloud not in ("sagemaker", None):
        return False  # EC2's prices and SageMaker's are not compared
    if one.host_bytes is None or one.host_bytes < step.needs.memory_bytes:
        return False
    if not step.gpus:
        return one.kind == "cpu"
    return one.kind == "nvidia" and one.devices >= step.gpus and step.gpu in ("", one.device_name)


def _rank(place: MachineOffer) -> tuple[bool, bool, bool, float, float, str]:
    one, usd = place.instance, place.usd
    late = place.timing.seconds > LONGEST_S
    idle = one.kind == "nvidia" and one.devices > place.gpus
    return late, usd is None, idle, usd or 0.0, one.price_usd_hour or 0.0, one.name

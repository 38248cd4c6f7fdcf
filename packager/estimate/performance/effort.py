"""Estimated time and cost of a step on a machine.

    seconds of a stage = products / rate + passes over tensors / bandwidth
                         + operations x time to start one + bytes / disk
                         + what no machine saves

Amounts are those of `amounts`; rates are data (`data/effort.toml`) for processors and shares
of the data sheet for GPUs.  The sum is compared with whole runs of the real tools; runs of the
past correct it.  Without amounts and past runs the time is unknown.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from packager.core.catalog import Accelerator
from packager.core.documents import NotStrict, field, parse_object
from packager.core.instance import DeviceKind, Instance
from packager.core.recipe import Step, Work
from packager.estimate.performance.amounts import counts

Origin = Literal["past", "estimate", ""]

# A run of the past corrects what is within this factor of its size, and by this at the most.
SIMILAR = 10.0
MOST_CORRECTION = 5.0

LABEL = "effort"  # of a result in the cache: a JSON object
LABEL_BYTES = 1000

DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSpeed:
    """Speed of a machine, with the threads and devices that a step uses."""

    matmul_flops_s: float
    float32_flops_s: float
    element_s: float
    operation_s: float
    disk_bytes_s: float
    import_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as a step sees it: its processor, and one of its GPUs where the step uses it."""

    host: WorkSpeed
    device: WorkSpeed | None = None  # None: the step works on the processor
    name: str = ""  # of the processor's row, or the GPU's: what past runs are compared by

    @property
    def kind(self) -> DeviceKind:
        """Return what the step computes on."""
        return "nvidia" if self.device else "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Duration of a step, and the estimate's origin."""

    seconds: float = 0.0  # 0: not known
    origin: Origin = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A step that was run: what by, on what, how large, and how long it took."""

    method: str
    kind: str  # of device: `cpu`, `nvidia`
    device: str  # as `Machine.name`
    estimated_s: float  # for that machine, by the version that ran it; 0: not known
    size_bytes: int
    seconds: float


def machine_for(step: Step, instance: Instance, accelerator: Accelerator | None) -> Machine | None:
    """Describe an instance as the step would use it; None where a GPU's figures are missing."""
    row, name = processor_of(instance)
    threads = threads_of(step, instance)
    host = _processor_speed(row, threads)
    if not step.gpus:
        return Machine(host=host, name=name)
    device = _gpu_speed(accelerator) if accelerator is not None else None
    return Machine(host=host, device=device, name=instance.device_name) if device else None


def threads_of(step: Step, instance: Instance) -> int:
    """Return the threads that a step computes with: one where its model is small, else the cores.

    A step that was described for this machine has this machine's number; on a rented one it
    would have that of its cores, two vCPUs each.
    """
    cores = max(1, (instance.vcpus or 0) // (1 if _is_here(instance) else _threads_per_core()))
    threads = step.thread_count
    if threads == 1:
        return 1
    return min(cores, threads) if threads and _is_here(instance) else cores


def processor_of(instance: Instance) -> tuple[Mapping[str, Any], str]:
    """Return the row of the processor, and its name: by instruction sets, else by family."""
    rows: Mapping[str, Mapping[str, Any]] = counts()["processor"]
    for name, row in rows.items():
        if instance.isa and set(row["isa"]) & set(instance.isa):
            return row, name
        if not instance.isa and instance.family in row["families"]:
            return row, name
    return rows["other"], "other"


def stage_seconds(work: Work, machine: Machine) -> float:
    """Return how long one stage takes."""
    device = machine.device
    speed = machine.host if work.on_host or device is None else device
    return (
        work.matmul_flops / speed.matmul_flops_s
        + work.float32_flops / speed.float32_flops_s
        + work.elements * speed.element_s
        + work.operations * speed.operation_s
        + (work.read_bytes + work.written_bytes) / machine.host.disk_bytes_s
        + work.seconds
        + ((device or machine.host).import_s if work.loads_libraries else 0.0)
    )


def estimated_seconds(step: Step, machine: Machine | None) -> float:
    """Return the step's seconds by its amounts; 0.0 if unknown."""
    if step.needs.seconds:
        return step.needs.seconds
    if machine is None or not step.needs.work:
        return 0.0
    return sum(stage_seconds(work, machine) for work in step.needs.work)


def timing_of(step: Step, machine: Machine | None, past: Iterable[PastRun] = ()) -> Timing:
    """Estimate a step's time; past runs of the method on such a device correct it by size.

    Without amounts, only past runs on models of about the same size count.
    """
    seconds = estimated_seconds(step, machine)
    alike = [run for run in past if machine is not None and _is_alike(run, step, machine)]
    if not step.needs.work:
        size = size_of(step)
        known = [run.seconds for run in alike if _ratio(run.size_bytes, size) <= 2]
        if known:
            return Timing(seconds=statistics.median(known), origin="past")
        return Timing(seconds=seconds, origin="estimate") if seconds else Timing()
    if not seconds:
        return Timing()
    near = [
        run
        for run in alike
        if machine is not None
        and run.device == machine.name
        and _ratio(run.estimated_s, seconds) <= SIMILAR
    ]
    if not near:
        return Timing(seconds=seconds, origin="estimate")
    scale = statistics.median(run.seconds / run.estimated_s for run in near)
    scale = min(max(scale, 1 / MOST_CORRECTION), MOST_CORRECTION)
    return Timing(seconds=seconds * scale, origin="past")


def time_limit_s(work: Iterable[Work]) -> float:
    """Return a step's time limit in seconds: a day, or twice one slow core's estimate if longer.

    A day alone would end the calibration of a large model on a processor.
    """
    slow = Machine(host=_processor_speed(counts()["processor"]["other"], 1))
    return max(DAY_S, 2 * sum(stage_seconds(each, slow) for each in work))


def install_seconds() -> float:
    """Return how long making a tool's environment takes."""
    seconds: float = counts()["host"]["install_s"]
    return seconds


def method_of(step: Step) -> str:
    """Return the method of a step: past runs of the same are compared."""
    return step.needs.method or f"{step.tool}/{step.name}"


def size_of(step: Step) -> int:
    """Return the size of what is worked on: the model's, else that of all inputs."""
    files = (file for given in step.inputs.values() for file in given.files)
    return step.needs.size_bytes or sum(file.size for file in files)


def label_of_run(step: Step, machine: Machine | None) -> dict[str, str]:
    """Write down what a run is compared by later, as a label of its result."""
    if machine is None:
        return {}
    document = {
        "method": method_of(step)[:100],
        "kind": machine.kind,
        "device": machine.name[:100],
        "estimated_s": round(estimated_seconds(step, machine), 1),
        "size_bytes": size_of(step),
    }
    return {LABEL: json.dumps(document, sort_keys=True, separators=(",", ":"))}


def past_run(label: str, seconds: float) -> PastRun | None:
    """Read the label of a result; None where packager did not write it."""
    try:
        document = parse_object(label.encode("utf-8", "replace"), max_bytes=LABEL_BYTES)
        estimated = document.get("estimated_s")
        if not isinstance(estimated, int | float) or isinstance(estimated, bool):
            return None
        return PastRun(
            method=field(document, "method", str),
            kind=field(document, "kind", str),
            device=field(document, "device", str),
            estimated_s=float(estimated),
            size_bytes=field(document, "size_bytes", int),
            seconds=seconds,
        )
    except NotStrict:
        return None


def _is_alike(run: PastRun, step: Step, machine: Machine) -> bool:
    return run.method == method_of(step) and run.kind == machine.kind and run.seconds > 0


def _is_here(instance: Instance) -> bool:
    """Whether it is this machine, which names its instruction sets; those for rent do not."""
    return bool(instance.isa)


def _threads_per_core() -> int:
    shared: int = counts()["host"]["threads_per_core"]
    return shared


def _ratio(one: float, other: float) -> float:
    if one <= 0 or other <= 0:
        return float("inf")
    return max(one / other, other / one)


def _processor_speed(row: Mapping[str, Any], threads: int) -> WorkSpeed:
    host = counts()["host"]
    times = float(threads ** host["thread_exponent"])
    return WorkSpeed(
        matmul_flops_s=row["matmul_gflops"] * 1e9 * times,
        float32_flops_s=row["float32_gflops"] * 1e9 * times,
        element_s=row["element_ns"] * 1e-9 / times,
        operation_s=row["operation_us"] * 1e-6,
        disk_bytes_s=host["disk_bytes_s"],
        import_s=host["import_s"],
    )


def _gpu_speed(accelerator: Accelerator) -> WorkSpeed | None:
    constants = counts()["gpu"]
    peak = accelerator.tflops.get("bf16", 0.0) * 1e12
    if not peak or not accelerator.bandwidth_bytes_s:
        return None
    element = constants["element_bytes"] / (
        accelerator.bandwidth_bytes_s * constants["bandwidth_share"]
    )
    return WorkSpeed(
        matmul_flops_s=peak * constants["matmul_share"],
        float32_flops_s=peak * constants["float32_share"],
        element_s=element,
        operation_s=constants["operation_us"] * 1e-6,
        disk_bytes_s=counts()["host"]["disk_bytes_s"],
        import_s=constants["start_s"],
    )

"""What the planner refuses of a server that others configured, given its model and machine.

The settings become a request, and `make_plan` judges it: degrees, heads, groups, types, memory.
What follows from a choice of packager's own is not asked: a length or a degree that the file leaves
open is the engine's default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from packager.architectures.profile import make_profile
from packager.catalog.containers import containers, find_container
from packager.check.demands import DEGREES, Demand, demand_of, devices_of
from packager.check.values import Remark, Server, Target
from packager.core.facts import ContainerFacts, Facts
from packager.core.instance import Instance
from packager.core.model import ModelFiles, ModelProfile
from packager.core.request import BuildRequest
from packager.core.values import dataclass
from packager.errors import PlanRejected, UsageError
from packager.findings import LACKS, MEMORY, Finding, errors_in
from packager.planning.planner import make_plan
from packager.ports import ContainerFamily
from packager.version import __version__

# Settings that put less on the devices than the checkpoint's files have: whether it fits is open.
UNCOUNTED = re.compile(
    r"(?:option\.)?(?:load[-_]format|cpu[-_]offload[-_]gb|hf[-_]overrides|model[-_]impl|"
    r"json[-_]model[-_]override[-_]args|offload.*|language[-_]model[-_]only|limit[-_]mm.*)"
)
# And of a checkpoint that is not quantized yet.
QUANTIZES = re.compile(r"(?:option\.)?(?:quantization|quantize|torchao-config|QUANTIZE)")
OURS = re.compile(r"--[a-z]|_degree|max_total_tokens|max_batch|kv_dtype", re.ASCII)
PLAIN_HINT = "`packager plan` with the model and the instance says what is possible"
# The rules across options tell of these, or nobody asked.
OF_OTHERS = frozenset(
    {"rope-incomplete", "shape-over-positions", "served-name", "container-version-unknown"}
)
# The field that a finding is about, by how its code begins.
ABOUT = {
    "tp": "tp_degree",
    "pp": "pp_degree",
    "dp": "dp_degree",
    "ep": "ep",
    "kv": "kv_dtype",
    "dtype": "dtype",
    "does": "max_total_tokens",
}


# Of fields that a file leaves open the engine's own default counts, not what packager takes.
OPEN = (*DEGREES, "ep", "dtype", "kv_dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a server is held against: a model and an instance, and how families are made."""

    model: ModelFiles
    instance: Instance
    family: Callable[[str], ContainerFamily]


def plan_remarks(server: Server, target: Target, machine: Machine) -> Iterator[Remark]:
    """Yield the planner's errors at the settings that they are about."""
    demand = demand_of(server, target)
    container = _container(target, machine.instance)
    if demand is None or demand.several or container is None:
        return
    devices = devices_of(server)
    count = devices.value if devices is not None else None
    if isinstance(count, int) and 0 < count < machine.instance.devices:
        machine = replace(machine, instance=replace(machine.instance, devices=count))
    profile, _ = make_profile(machine.model)
    try:
        _plan(demand, container, machine, profile)
    except PlanRejected as rejected:
        is_open = any(UNCOUNTED.fullmatch(name) for name in demand.names) or (
            not profile.quantization and any(QUANTIZES.fullmatch(name) for name in demand.names)
        )
        for finding in errors_in(rejected.findings):
            field = ABOUT.get(finding.code.partition("-")[0], "")
            follows = field in OPEN and field not in demand.fields  # from what packager chose
            lacks = finding.data.get(LACKS) == MEMORY
            if finding.code not in OF_OTHERS and not follows and not (lacks and is_open):
                place = demand.place(field, *DEGREES) or server.place
                yield Remark(place, _worded(finding))


def _plan(
    demand: Demand, container: ContainerFacts, machine: Machine, profile: ModelProfile
) -> None:
    values = {name: one.value for name, one in demand.fields.items() if one.value is not None}
    longest = profile.max_positions
    if container.family == "vllm":  # where nothing is said, one device and the model's length
        defaults = {**dict.fromkeys(DEGREES, 1), "max_total_tokens": longest or None, "ep": False}
        values = {**defaults, **values}
        if demand.degree("tp_degree") * demand.degree("dp_degree") == 1:
            values["ep"] = False  # there is nothing to spread experts over
    total = values.get("max_total_tokens")
    if isinstance(total, int) and longest:
        values["max_total_tokens"] = min(total, longest)
    request = BuildRequest.model_validate(
        {
            **{name: value for name, value in values.items() if value is not None},
            "model": str(machine.model.ref),
            "instance": machine.instance.name,
            "family": container.family,
            "nodes": 1,
            "max_batch": 1,  # an engine starts where one request fits
        }
    )
    facts = Facts(
        request=request,
        model=machine.model,
        instance=machine.instance,
        container=container,
        base=None,
        packager_version=__version__,
        containers=containers(),
    )
    make_plan(facts, machine.family(container.family), instances=None)


def _container(target: Target, instance: Instance) -> ContainerFacts | None:
    """Return the catalog's image of a version, or the family's newest with this engine."""
    wanted = (target.family, instance.kind, target.version)
    for one in containers():
        if (one.family, one.kind, one.engine_version) == wanted:
            return one
    try:
        newest = find_container(target.family, instance.kind)
    except UsageError:
        return None
    return replace(newest, engine_version=target.version, least_compute_capability=0.0)


def _worded(finding: Finding) -> Finding:
    """Return a finding whose hint names no option of packager's."""
    return replace(finding, hint=PLAIN_HINT) if OURS.search(finding.hint) else finding

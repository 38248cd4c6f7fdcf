"""The planner's refusals of a server that others configured, for its model and machine.

The settings become a request, which `make_plan` checks: degrees, heads, groups, types, memory.
Choices of packager's own are not checked: a length or a degree that the file leaves open is the
engine's default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from packager.addons.check.demands import DEGREES, FIELDS, Demand, demand_of, devices_of
from packager.addons.check.locating import located
from packager.addons.check.values import ConfigTarget, DescribedServer, Remark
from packager.catalog.containers import containers, find_container
from packager.core.errors import PlanRejected, UsageError
from packager.core.facts import ContainerFacts, Facts
from packager.core.findings import LACKS, MEMORY, Finding, errors_in
from packager.core.instance import Instance
from packager.core.model import ModelFiles, ModelProfile
from packager.core.ports import ContainerFamily
from packager.core.positions import Place
from packager.core.request import BuildRequest
from packager.core.version import __version__
from packager.engines.effects import check_effects, effect_of, engine_named
from packager.engines.lengths import length_limit
from packager.models.architectures.profile import make_profile
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices

# Settings that put less on the devices than the checkpoint's files have: whether it fits is open.
UNCOUNTED = re.compile(
    r"(?:option\.)?(?:load[-_]format|hf[-_]overrides|model[-_]impl|"
    r"json[-_]model[-_]override[-_]args|offload.*|language[-_]model[-_]only|limit[-_]mm.*)"
)
# And of a checkpoint that is not quantized yet.
QUANTIZES = re.compile(r"(?:option\.)?(?:quantization|quantize|torchao-config|QUANTIZE)")
OURS = re.compile(r"--[a-z]|_degree|max_total_tokens|max_batch|kv_dtype", re.ASCII)
PLAIN_HINT = "`packager plan` with the model and the instance says what is possible"
# The rules across options report these, or they are not about the file's settings.
OF_OTHERS = frozenset(
    {
        *("rope-incomplete", "shape-over-positions", "served-name", "container-version-unknown"),
        *("value-refused", "options-conflict", "key-dropped"),
    }
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
ENOUGH_BYTES = 1 << 50  # of one device, for any model
OPEN = (*DEGREES, "ep", "dtype", "kv_dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMachine:
    """What a server is held against: a model and an instance, and how families are made."""

    model: ModelFiles
    instance: Instance
    family: Callable[[str], ContainerFamily]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """A setting as an engine option of a request, and as the engine's own parser has it."""

    name: str
    text: str
    own: str
    value: str
    place: Place


def plan_remarks(
    server: DescribedServer, target: ConfigTarget, machine: CheckedMachine
) -> Iterator[Remark]:
    """Yield the planner's errors at the settings that they are about, and what it cannot count."""
    demand = demand_of(server, target)
    container = _container(target, machine.instance)
    if demand is None or demand.several or container is None:
        return
    devices = devices_of(server)
    count = devices.value if devices is not None else None
    if isinstance(count, int) and 0 < count < machine.instance.devices:
        machine = replace(machine, instance=replace(machine.instance, devices=count))
    profile, _ = make_profile(machine.model)
    options = [*_options(demand, container)]
    refused = _refused(demand, container, machine, profile, options, server.variables)
    if refused:
        is_open = any(UNCOUNTED.fullmatch(name) for name in demand.settings) or (
            not profile.quantization and any(QUANTIZES.fullmatch(name) for name in demand.settings)
        )
        for finding in refused:
            field = ABOUT.get(finding.code.partition("-")[0], "")
            follows = field in OPEN and demand.value(field) is None  # from what packager chose
            lacks = finding.data.get(LACKS) == MEMORY
            if finding.code not in OF_OTHERS and not follows and not (lacks and is_open):
                place = demand.place(field, *DEGREES) or server.place
                yield Remark(place, _worded(finding))
    found = check_effects(container.engine, container, _named(options), profile)
    uncounted = [replace(one, severity="note") for one in found if one.severity == "warning"]
    yield from located(uncounted, {one.own: one.place for one in options}, server.place)


def _options(demand: Demand, container: ContainerFacts) -> Iterator[_Option]:
    """Yield the settings that are not fields of a request."""
    fields = FIELDS[container.family].values()
    for key, one in demand.settings.items():
        if one.value is not None and key not in fields:
            name = key.removeprefix("option.")
            text = str(one.value).lower() if isinstance(one.value, bool) else str(one.value)
            for own, value in engine_named(container, {name: text}).items():
                yield _Option(name=name, text=text, own=own, value=value, place=one.place)


def _named(options: Iterable[_Option]) -> dict[str, str]:
    return {one.own: one.value for one in options}


def _refused(
    demand: Demand,
    container: ContainerFacts,
    machine: CheckedMachine,
    profile: ModelProfile,
    options: Sequence[_Option],
    environment: Mapping[str, str],
) -> list[Finding]:
    """Return the planner's errors; behind one about memory, also those of a device with enough."""
    found: list[Finding] = []
    device = f"{machine.instance.device_name} with more memory"
    roomy = replace(machine.instance, device_bytes=ENOUGH_BYTES, device_name=device)
    for instance in (machine.instance, roomy):
        try:
            held = replace(machine, instance=instance)
            _plan(demand, container, held, profile, options, environment)
        except PlanRejected as rejected:
            seen = {one.code for one in found}
            found += [one for one in errors_in(rejected.findings) if one.code not in seen]
        if not any(one.data.get(LACKS) == MEMORY for one in found):
            break
    return found


def _plan(
    demand: Demand,
    container: ContainerFacts,
    machine: CheckedMachine,
    profile: ModelProfile,
    options: Iterable[_Option],
    environment: Mapping[str, str],
) -> None:
    values = {name: one.value for name, one in demand.fields.items() if one.value is not None}
    derive = partial(
        length_limit,
        container.engine,
        container.engine_version,
        machine.model.config,
        assumed_tokens=profile.max_positions,
        options=_named(options),
    )
    longest = derive().tokens or profile.max_positions
    if container.family == "vllm":  # by default, one device and the model's length
        defaults = {**dict.fromkeys(DEGREES, 1), "max_total_tokens": longest or None, "ep": False}
        values = {**{name: defaults[name] for name in defaults.keys() - demand.fields}, **values}
        if demand.degree("tp_degree") * demand.degree("dp_degree") == 1:
            values["ep"] = False  # one device: experts cannot be spread
    total, most = values.get("max_total_tokens"), derive(environment=environment)
    if isinstance(total, int) and most.tokens:
        values["max_total_tokens"] = min(total, most.tokens)
    request = BuildRequest.model_validate(
        {
            **{name: value for name, value in values.items() if value is not None},
            "model": str(machine.model.ref),
            "instance": machine.instance.name,
            "family": container.family,
            "nodes": 1,
            "max_batch": 1,  # an engine starts where one request fits
            "engine_options": {
                one.name: one.text for one in options if effect_of(container, one.own) == "counted"
            },
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
        environment=environment,
    )
    family = machine.family(container.family)
    make_plan(facts, PlannerServices(family=family, instances=None))


def _container(target: ConfigTarget, instance: Instance) -> ContainerFacts | None:
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

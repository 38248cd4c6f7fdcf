"""Catalog rows as plain tables: one flat record a row, for text, JSON and CSV alike.

Every record of catalog data ends with `source` and `date`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packager.catalog.accelerators import accelerator_name, accelerator_of, accelerator_rows
from packager.catalog.bare import bare_machine
from packager.catalog.compatibility import rules
from packager.catalog.containers import containers, serves
from packager.catalog.instances import instances
from packager.catalog.models import drafts_for, known_drafts, models
from packager.catalog.prices import price_of, prices
from packager.catalog.registries import registries
from packager.catalog.served_architectures import (
    GENERATIVE,
    POOLED,
    kind_of,
    listed_architectures,
    listing_engines,
    read_on,
    versions_words,
)
from packager.catalog.techniques import techniques
from packager.core.catalog import Accelerator, CatalogModel, Price, RuleValue
from packager.core.facts import ContainerFacts
from packager.core.instance import Instance
from packager.core.units import GIB, MIB
from packager.core.user_catalog import UserCatalog

Record = dict[str, Any]
DEVICES = ("cpu", "nvidia", "amd", "neuron")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Filters on rows. None: all rows."""

    family: str | None = None  # serving family
    device: str | None = None  # `nvidia`, `amd`, `neuron`, `cpu`
    min_memory_gib: float | None = None  # of all devices of an instance together
    region: str | None = None
    text: str = ""  # found in any field, whatever the letters' case


def list_instances(own: UserCatalog, wanted: Filter) -> list[Record]:
    """Return one record per instance type, with its price in the requested region."""
    served = None
    if wanted.family is not None:
        served = [image for image in containers(own.containers) if image.family == wanted.family]
    return [
        _instance_record(found, price_of(found, wanted.region, own.prices))
        for found in instances(own.instances)
        if wanted.device in (None, found.kind)
        and found.devices * found.device_bytes >= (wanted.min_memory_gib or 0.0) * GIB
        and (served is None or any(_runs(image, found) for image in served))
    ]


def list_accelerators(own: UserCatalog, wanted: Filter) -> list[Record]:
    """Return one record per kind of device, whether a cloud of the catalog rents it or not.

    An instance's own host processor is none.
    """
    found: dict[tuple[str, int], Record] = {}
    for instance in (*instances(own.instances), *_pairs()):
        if instance.kind == "cpu" or wanted.device not in (None, instance.kind):
            continue
        device = accelerator_of(instance, own.accelerators)
        key = (device.name, device.usable_bytes)
        if key not in found or not found[key]["link"]:
            found[key] = _accelerator_record(device)
    return list(found.values())


def list_models(own: UserCatalog, wanted: Filter) -> list[Record]:  # noqa: ARG001
    """Return one record per checkpoint that has a published optimization.

    SageMaker publishes some under several ids of its own: they stand in one record.
    """
    found: dict[str, list[CatalogModel]] = {}
    for model in models(own.models):
        found.setdefault(model.hf_id, []).append(model)
    return [_model_record(*same) for same in found.values()]


def list_architectures(own: UserCatalog, wanted: Filter) -> list[Record]:  # noqa: ARG001
    """Return one record per model class that an engine supports, with the engine's versions."""
    return [
        {
            "architecture": name,
            "kind": kind_of(name),
            "planned": kind_of(name) in (*GENERATIVE, *POOLED),
            **{engine: versions_words(engine, name) for engine in listing_engines()},
            "source": "vLLM models/registry.py, SGLang models/*.py",
            "date": read_on(),
        }
        for name in listed_architectures()
    ]


def list_served(
    own: UserCatalog,
    wanted: Filter,  # noqa: ARG001
    pools: Callable[[ContainerFacts], bool] = lambda _image: False,
) -> list[Record]:
    """Return one record per kind of model: which families serve it, on devices and processors.

    `pools` says which images serve models that give vectors or scores.  Engines without a list of
    classes, and those on Neuron, serve texts alone, as far as the catalog knows.
    """
    kinds: dict[str, int] = {}
    for name in listed_architectures():
        kind = kind_of(name)
        kinds[kind] = kinds.get(kind, 0) + (kind != "")
    images = containers(own.containers)
    return [
        {
            "kind": kind,
            "classes": count,
            **{device: _serving(kind, device, images, pools) for device in DEVICES},
            "source": "vLLM models/registry.py, SGLang models/*.py; containers/serving/images.toml",
            "date": read_on(),
        }
        for kind, count in sorted(kinds.items(), key=lambda row: -row[1])
        if count and kind != "draft"  # beside a model that is served
    ]


def _serving(
    kind: str,
    device: str,
    images: Iterable[ContainerFacts],
    pools: Callable[[ContainerFacts], bool],
) -> str:
    """Return the families that serve a kind there, and the processors that images are for."""
    if kind not in (*GENERATIVE, *POOLED):
        return "refused"
    usable = [one for one in images if one.kind == device and _has_kind(one, kind, pools)]
    families = ", ".join(dict.fromkeys(one.family for one in usable))
    platforms = {name.rpartition("/")[2] for one in usable for name in one.platforms}
    return f"{families} ({', '.join(sorted(platforms))})" if usable else ""


def _has_kind(image: ContainerFacts, kind: str, pools: Callable[[ContainerFacts], bool]) -> bool:
    if kind == "text":
        return True
    if image.kind == "neuron" or image.engine not in listing_engines():
        return False
    if kind in POOLED and not pools(image):
        return False
    return any(kind_of(name) == kind for name in listed_architectures(image.engine))


def list_drafts(own: UserCatalog, wanted: Filter) -> list[Record]:  # noqa: ARG001
    """Return one record per published draft of each model, as `--draft` takes it.

    MTP heads are in their models' checkpoints and not listed.
    """
    rows = [(model.hf_id, draft) for model in own.models for draft in model.drafts]
    rows += [(model, draft) for model, drafts in known_drafts().items() for draft in drafts]
    return [
        {
            "model": model,
            "kind": draft.kind,
            "draft": draft.reference
            if draft.kind == "draft_model"
            else f"{draft.kind}:{draft.reference}",
            "license": draft.license,
            "weights": draft.weights,
            "note": draft.note,
            "source": draft.source,
            "date": draft.date,
        }
        for model, draft in rows
    ]


def list_containers(own: UserCatalog, wanted: Filter) -> list[Record]:
    """Return one record per image, newest first."""
    return [
        {
            "family": image.family,
            "variant": image.variant,
            "device": image.kind,
            "release": image.release,
            "engine": image.engine,
            "engine_version": image.engine_version,
            "version": image.version,
            "base": image.default_base,
            "targets": list(image.targets),
            "least_compute_capability": image.least_compute_capability or None,
            "cuda": image.cuda,
            "least_driver": image.least_driver,
            "inference_ami": image.inference_ami,
            "source": image.source,
            "date": image.date,
        }
        for image in containers(own.containers)
        if wanted.family in (None, image.family) and wanted.device in (None, image.kind)
    ]


def list_techniques(own: UserCatalog, wanted: Filter) -> list[Record]:  # noqa: ARG001
    """Return one record per quantizer, compiler and kind of draft."""
    return [
        {
            "name": found.name,
            "kind": found.kind,
            "streams": found.streams,
            "gives": found.gives,
            "families": list(found.families),
            "devices": list(found.devices),
            "summary": found.summary,
            "source": found.source,
            "date": found.date,
        }
        for found in techniques()
        if (wanted.family is None or wanted.family in found.families)
        and (wanted.device is None or wanted.device in found.devices)
    ]


def list_compatibility(own: UserCatalog, wanted: Filter) -> list[Record]:  # noqa: ARG001
    """Return one record per rule that may concern the requested family and device."""
    return [
        {
            "code": rule.id,
            "severity": rule.severity,
            "when": "; ".join(f"{key} {_condition(value)}" for key, value in rule.when.items()),
            "reason": _general(rule.reason),
            "instead": _general(rule.instead),
            "link": rule.link,
            "source": rule.source,
            "date": rule.date,
        }
        for rule in rules()
        if _concerns(rule.when.get("family"), wanted.family)
        and _concerns(rule.when.get("device"), wanted.device)
    ]


def list_prices(own: UserCatalog, wanted: Filter) -> list[Record]:
    """Return one record per known price of an instance in a region."""
    return [
        {
            "instance": price.instance,
            "region": price.region,
            "usd_hour": price.usd_hour,
            "basis": price.basis,
            "source": price.source,
            "date": price.date,
        }
        for price in prices(own.prices)
        if wanted.region in (None, price.region)
    ]


def list_registries(own: UserCatalog, wanted: Filter) -> list[Record]:  # noqa: ARG001
    """Return one record per kind of registry, with the known limits."""
    return [
        {
            "registry": found.name,
            "hosts": list(found.hosts),
            "layer_mib": found.layer_bytes // MIB or None,
            "layers": found.layers or None,
            "upload_minutes": found.upload_s / 60 or None,
            "body_mib": found.body_bytes // MIB or None,
            "chunk_mib": found.chunk_bytes // MIB or None,
            "forms": list(found.forms),
            "mounts": found.mounts,
            "referrers": found.referrers,
            "create": found.create,
            "note": found.note,
            "source": found.source,
            "date": found.date,
        }
        for found in registries(own.registries)
    ]


def with_text(records: list[Record], text: str) -> list[Record]:
    """Return the records that have the text in any field."""
    wanted = text.lower()
    return [
        record
        for record in records
        if any(wanted in shown(value).lower() for value in record.values())
    ]


def shown(value: Any) -> str:
    """Write a field for people and for CSV."""
    if value is None or value is False:
        return "" if value is None else "no"
    if value is True:
        return "yes"
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, Mapping):
        return " ".join(f"{key}={part:g}" for key, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _runs(image: ContainerFacts, instance: Instance) -> bool:
    return (
        serves(image, instance.kind, instance.name)
        and (instance.compute_capability or 0.0) >= image.least_compute_capability
    )


def _instance_record(found: Instance, price: Price | None) -> Record:
    return {
        "instance": found.name,
        "cloud": found.cloud or "",
        "kind": found.kind,
        "device": found.device_name,
        "devices": found.devices,
        "device_gib": round(found.device_bytes / GIB, 1),
        "total_gib": round(found.devices * found.device_bytes / GIB, 1),
        "link": found.link,
        "vcpus": found.vcpus or 0,
        "host_gib": round((found.host_bytes or 0) / GIB, 1),
        "machine": found.machine or "",
        "compute_capability": found.compute_capability,
        "formats": sorted(found.formats),
        "usd_hour": price.usd_hour if price else None,
        "price_region": price.region if price else "",
        "price_basis": price.basis if price else found.price_basis,
        "price_date": price.date if price else "",
        "source": found.source,
        "date": found.date,
    }


def _pairs() -> Iterator[Instance]:
    """Yield two of each device that a machine can be named by, so that their link shows."""
    for row in accelerator_rows().values():
        if row.spelled and (pair := bare_machine(f"2x{row.spelled}")) is not None:
            yield pair


def _accelerator_record(device: Accelerator) -> Record:
    row = accelerator_rows().get(accelerator_name(device.name))
    return {
        "name": device.name,
        "spelled": row.spelled if row else "",
        "kind": device.kind,
        "usable_gib": round(device.usable_bytes / GIB, 1),
        "bandwidth_gb_s": device.bandwidth_bytes_s / 1e9 or None,
        "tflops": dict(device.tflops),
        "link": device.link,
        "link_gb_s": device.link_bytes_s / 1e9 or None,
        "compute_capability": device.compute_capability,
        "neuron_core": device.neuron_core,
        "formats": sorted(device.formats),
        "source": device.source,
        "date": device.date,
    }


def _model_record(model: CatalogModel, *same: CatalogModel) -> Record:
    drafts = model.drafts or drafts_for(model.hf_id)
    return {
        "model": model.hf_id,
        "family": model.family,
        "architecture": model.architecture,
        "quantization": model.quantization,
        "speculative": model.speculative,
        "sagemaker_draft": model.sagemaker_draft,
        "precompiled_neuron": model.precompiled_neuron,
        "preoptimized": model.preoptimized,
        "eagle": model.eagle,
        "drafts": [f"{draft.kind}:{draft.reference}" for draft in drafts],
        "techniques": list(model.techniques),
        "jumpstart_id": " ".join(one.jumpstart_id for one in (model, *same)),
        "note": model.note,
        "source": model.source,
        "date": model.date,
    }


def _condition(value: RuleValue) -> str:
    if isinstance(value, tuple):
        return "is " + " or ".join(word or "none" for word in value)
    return f"is {value}" if value != "" else "is none"


def _general(text: str) -> str:
    """Return a rule's text without a situation: `{engine_version}` becomes `<engine version>`."""
    return re.sub(r"\{(\w+)\}", lambda match: f"<{match[1].replace('_', ' ')}>", text)


def _concerns(condition: RuleValue | None, wanted: str | None) -> bool:
    """Return whether a rule's condition allows the requested value."""
    if condition is None or wanted is None:
        return True
    words = condition if isinstance(condition, tuple) else (str(condition),)
    if any(word == f"!{wanted}" for word in words):
        return False
    named = [word for word in words if not word.startswith("!")]
    return not named or wanted in named

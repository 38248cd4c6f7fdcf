"""Images and records as deployments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packager.addons.deploy.checks import check_planned
from packager.addons.deploy.source import Subject, instance_name, make_deployment
from packager.cli.serving.containers import digests_of, find_image
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.rows import CatalogRows
from packager.cli.wiring.settings import Settings, parse_output, state_dir
from packager.core.deployment import Deployment
from packager.core.errors import NotFound, PackagerError
from packager.core.image import Platform
from packager.core.instance import LOCAL, Instance
from packager.core.record import BuildRecord
from packager.core.references import ImageTarget, RegistryTarget
from packager.images.docker_engine import connect_engine
from packager.images.opened import OpenImage
from packager.images.target import ENGINE
from packager.pipeline.attached_record import attached_records
from packager.pipeline.records import find_record, load_record


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """What the user says of an image beside its name."""

    instance: str = ""  # "": that it was built for
    name: str = ""  # of the deployment; "": the model's
    pulled: str = ""  # where nodes pull it; "": as it is named
    model_data: str = ""  # s3:// of the mounted tree
    bytes_s: float | None = None  # that nodes pull and unpack


def find_deployment(
    text: str, platform: Platform, settings: Settings, asked: DeployOptions
) -> Deployment:
    """Return the deployment of an image or of a record's file.

    Raises `NotFound` for an unknown name, `UsageError` for an image that cannot be deployed.
    """
    subject = find_subject(text, platform, settings, asked.pulled)
    rows = CatalogRows(settings)
    instance = rows.find_instance(asked.instance or instance_name(subject))
    made = make_deployment(
        subject,
        instance,
        name=asked.name,
        weights_uri=asked.model_data,
        bytes_s=asked.bytes_s,
    )
    planned = _planned(subject, rows) if asked.instance else None
    if planned is None or planned.name in (instance.name, LOCAL):
        return made
    return replace(made, findings=(*made.findings, *check_planned(made, planned)))


def _planned(subject: Subject, rows: CatalogRows) -> Instance | None:
    """Return the instance type that an image was planned for; None if unknown."""
    try:
        return rows.find_instance(instance_name(subject))
    except PackagerError:  # it does not say, or names one of another catalog
        return None


def find_subject(text: str, platform: Platform, settings: Settings, pulled: str = "") -> Subject:
    """Return what is known of an image: its documents and the record of its build.

    A record of this machine is taken before one that is attached, which is a claim.
    """
    if Path(text).is_file():
        found = _of_record(load_record(Path(text)), text, platform, settings, pulled)
        _check_policy(text, found, pulled, settings)
        return found
    target = parse_output(text)
    opened = image_services_for(settings).open(target, platform)
    where = pulled or (_pinned(target, opened) if isinstance(target, RegistryTarget) else "")
    if target.scheme == ENGINE:
        where = pulled or target.rest
    found = Subject(
        reference=text,
        pulled=where,
        record=_record_of(opened, settings.environment, engine_digests(target)),
        image=opened.image,
    )
    _check_policy(text, found, pulled, settings)
    return found


def _check_policy(text: str, found: Subject, pulled: str, settings: Settings) -> None:
    """Refuse what the policy cannot have been held to: an image that nodes find by another name."""
    from packager.cli.wiring.policies import policy_of
    from packager.images.signatures.policy import not_allowed

    if not settings.policy.is_enforced or settings.policy.is_skipped:
        return
    policy = policy_of(settings, text)
    if policy is None:
        return
    if found.image is None:
        raise not_allowed(text, "its image is not there to be verified", policy.place)
    if pulled and not pulled.endswith(f"@{found.image.digest}"):
        reason = f"nodes pull {pulled!r}, which names no digest: add @{found.image.digest}"
        raise not_allowed(text, reason, policy.place)


def engine_digests(target: ImageTarget) -> tuple[str, ...]:
    """Return the digests by which a Docker Engine knows an image; () of an image elsewhere.

    An engine that keeps no manifests gives an image another one than its build did.
    """
    if target.scheme != ENGINE:
        return ()
    return digests_of(find_image(connect_engine(), target.rest))


def record_place_of(text: str, deployment: Deployment) -> Path | None:
    """Return the record of a deployment's image on this machine; None where there is none.

    A file that was named is taken where the state directory has no record of that build.
    """
    named = Path(text) if Path(text).is_file() else None
    if named is not None:
        digests: tuple[str, ...] = (load_record(named).digest,)
    else:
        digests = (deployment.digest, *engine_digests(parse_output(text)))
    found = find_record(state_dir(os.environ), tuple(filter(None, digests)))
    return found or named


def _of_record(
    record: BuildRecord, text: str, platform: Platform, settings: Settings, pulled: str
) -> Subject:
    """Return the subject of a record; its image is opened where it still is."""
    images = sorted(record.images, key=lambda one: ":" in one.target.partition("/")[0])
    for image in images:
        try:
            target = parse_output(image.name)
            opened = image_services_for(settings).open(target, platform)
        except NotFound:
            continue
        if opened.image.digest not in record.digests:
            continue
        where = _pinned(target, opened) if isinstance(target, RegistryTarget) else ""
        if target.scheme == ENGINE:
            where = target.rest
        return Subject(
            reference=image.name, pulled=pulled or where, record=record, image=opened.image
        )
    return Subject(reference=text, pulled=pulled, record=record)


def _pinned(target: RegistryTarget, opened: OpenImage) -> str:
    """Return a registry's image by digest: a tag may name another one when a node pulls it."""
    return f"{target.image.name}@{opened.image.digest}"


def _record_of(
    opened: OpenImage, environment: Mapping[str, str], others: tuple[str, ...] = ()
) -> BuildRecord | None:
    image = opened.image
    digests = (image.digest, image.sealed.config_descriptor.digest, *others)
    place = find_record(state_dir(environment or os.environ), digests)
    if place is not None:
        return load_record(place)
    return next(iter(attached_records(opened)), None)

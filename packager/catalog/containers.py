"""Serving images by family and kind of device, read from `containers/serving/images.toml`.

The table's order is the preference: the first image that serves the device is
what a user gets who names no version.  AWS keeps its images in one account a
region; `data/accounts.toml` says which.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.catalog.drivers import with_host_needs
from packager.core.errors import UsageError
from packager.core.facts import ContainerFacts
from packager.core.instance import DeviceKind
from packager.core.share import read_shipped, share_dir

_LISTED = 10  # versions that a hint names
ACCOUNTS_TABLE = Path(__file__).parent / "data" / "accounts.toml"


def unknown_family(name: str, known: tuple[str, ...]) -> UsageError:
    """Return an error: the catalog has no image of a serving container family of that name."""
    nearest = difflib.get_close_matches(name, known, n=1)
    guess = f"did you mean {nearest[0]!r}? " if nearest else ""
    return UsageError(
        f"the catalog has no image of serving family {name!r}",
        hint=f"{guess}known: {', '.join(known)}; rows of --catalog add more",
        code="UnknownFamily",
    )


def family_not_for_device(family: str | None, device: str, serving: tuple[str, ...]) -> UsageError:
    """Return an error: the family has no image for that kind of device, or no family has one."""
    if serving:
        hint = f"use {' or '.join(map(repr, serving))}, or leave the family out"
    else:
        hint = "choose an instance with NVIDIA GPUs, or `local`"
    who = f"serving family {family!r} has" if family else "no serving family has"
    return UsageError(
        f"{who} {'no' if family else 'an'} image for {device} devices",
        hint=hint,
        code="FamilyNotForDevice",
    )


def unknown_container_version(
    version: str, family: str | None, found: tuple[ContainerFacts, ...]
) -> UsageError:
    """Return an error: no image of the family for that device has such a version."""
    names = tuple(dict.fromkeys(name for image in found for name in version_names(image)))
    nearest = difflib.get_close_matches(version, names, n=1)
    guess = f"did you mean {nearest[0]!r}? " if nearest else ""
    short = tuple(dict.fromkeys(image.release or image.engine_version for image in found))
    listed = ", ".join(short[:_LISTED]) + (", …" if len(short) > _LISTED else "")
    return UsageError(
        f"no {family or 'serving'} image has version {version!r}",
        hint=f"{guess}there are {listed}; `packager list containers` shows them all",
        code="UnknownContainerVersion",
    )


def unknown_region(region: str, known: tuple[str, ...]) -> UsageError:
    """Return an error: AWS publishes no serving images in a region of that name, as far as the

    catalog knows.
    """
    nearest = difflib.get_close_matches(region, known, n=1)
    guess = f"did you mean {nearest[0]!r}? " if nearest else ""
    return UsageError(
        f"region {region!r} has no serving images in the catalog",
        hint=f"{guess}name the image with --base to use one from elsewhere",
        code="UnknownRegion",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Which AWS account holds the images of a region, and how its addresses end."""

    by_region: Mapping[str, str]
    dns_suffixes: Mapping[str, str]  # beginning of a region's name → suffix
    default_region: str
    source: str
    date: str

    def registry(self, region: str) -> str:
        """Return the registry's host name in a region."""
        if region not in self.by_region:
            raise unknown_region(region, tuple(self.by_region))
        suffix = next(
            (end for start, end in self.dns_suffixes.items() if region.startswith(start)),
            "amazonaws.com",
        )
        return f"{self.by_region[region]}.dkr.ecr.{region}.{suffix}"


@cache
def accounts() -> Accounts:
    """Read the table of accounts."""
    table = read_shipped(ACCOUNTS_TABLE)
    return Accounts(
        by_region=table["region"],
        dns_suffixes=table["dns_suffix"],
        default_region=table["default_region"],
        source=table["source"],
        date=table["date"],
    )


@cache
def containers(extra: tuple[ContainerFacts, ...] = ()) -> tuple[ContainerFacts, ...]:
    """List every serving image, the user's own first."""
    return (*map(with_host_needs, extra), *_shipped_containers())


@cache
def _shipped_containers() -> tuple[ContainerFacts, ...]:
    table = share_dir("containers") / "serving" / "images.toml"
    return tuple(image for series in read_shipped(table)["series"] for image in _images(series))


def find_container(
    family: str | None,
    kind: DeviceKind,
    version: str | None = None,
    region: str | None = None,
    instance_name: str = "",
    extra: tuple[ContainerFacts, ...] = (),
) -> ContainerFacts:
    """Find an image for a kind of device: the preferred family, the newest version.

    A version is a tag, a release such as `28` or `lmi28`, or the engine's version.
    With a region, the image's address is the one AWS publishes there.
    """
    everything = containers(extra)
    known = tuple(dict.fromkeys(image.family for image in everything))
    if family is not None and family not in known:
        raise unknown_family(family, known)
    serving = [image for image in everything if serves(image, kind, instance_name)]
    wanted = families_by_preference(extra) if family is None else (family,)
    candidates = tuple(image for name in wanted for image in serving if image.family == name)
    if not candidates:
        device = f"{kind} ({instance_name})" if instance_name and kind == "neuron" else kind
        raise family_not_for_device(
            family, device, tuple(dict.fromkeys(image.family for image in serving))
        )
    if version is not None:
        named = tuple(image for image in candidates if version in version_names(image))
        if not named:
            raise unknown_container_version(version, family, candidates)
        candidates = named
    found = candidates[0]
    return replace(found, default_base=image_uri(found, region)) if region else found


def families_by_preference(extra: tuple[ContainerFacts, ...] = ()) -> tuple[str, ...]:
    """List families, the preferred first: in the order of the shipped table, then the user's."""
    return tuple(dict.fromkeys(image.family for image in (*containers(), *extra)))


def serves(image: ContainerFacts, kind: DeviceKind, instance_name: str = "") -> bool:
    """Return whether an image is for that kind of device, and for that instance, if any."""
    if image.kind != kind:
        return False
    if not image.targets or not instance_name:
        return True
    return instance_name.removeprefix("ml.").partition(".")[0] in image.targets


def version_names(image: ContainerFacts) -> tuple[str, ...]:
    """Return every name that a request may use for an image's version."""
    names = (image.version, image.release, image.engine_version)
    together = f"{image.family}{image.release}" if image.release else ""  # `lmi28`
    return tuple(name for name in (*names, together) if name)


def image_uri(image: ContainerFacts, region: str | None = None) -> str:
    """Return the reference to pull in a region; without a region, the default one."""
    if not image.repository or not region:
        return image.default_base
    return f"{accounts().registry(region)}/{image.repository}:{image.version}"


def _images(series: Mapping[str, Any]) -> Iterator[ContainerFacts]:
    for image in series["images"]:
        row = {**series, **image}
        tag = row.get("tag", "")
        found = ContainerFacts(
            family=row["family"],
            kind=row["kind"],
            engine=row["engine"],
            engine_version=row["engine_version"],
            version=tag,
            default_base=_default_base(row, tag),
            least_compute_capability=row.get("least_compute_capability", 0.0),
            source=f"{row['source']} ({row['date']})",
            date=row["date"],
            variant=row.get("variant", ""),
            release=row.get("release", ""),
            targets=tuple(row.get("targets", ())),
            repository=row.get("repository", ""),
            cuda=row.get("cuda", ""),
            platforms=tuple(row.get("platforms", ("linux/amd64",))),
        )
        yield with_host_needs(found)


def _default_base(row: Mapping[str, Any], tag: str) -> str:
    if base := row.get("base", ""):
        return str(base)
    if registry := row.get("registry", ""):
        return f"{registry}:{tag}"
    registry = accounts().registry(accounts().default_region)
    return f"{registry}/{row['repository']}:{tag}"

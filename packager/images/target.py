"""Parsing images: `oci:DIR[:TAG]`, `docker:NAME[:TAG]`, `HOST/REPOSITORY[:TAG]`, each `[@DIGEST]`.

The only place that knows this grammar.  Which schemes there are is said by the tables of
sinks and bases; a text without a known scheme is a registry's.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from artifact_cache.s3.buckets import why_no_bucket
from packager.core.errors import UsageError
from packager.core.references import (
    BucketPlace,
    ImageTarget,
    LayoutTarget,
    RegistryTarget,
    parse_bucket_place,
)
from packager.images.registry.reference import check_digest, parse_reference

LAYOUT, REGISTRY, ENGINE = "oci", "registry", "docker"
DIRECTORY, BUCKET = "dir", "s3"  # trees of files instead of images
_PORT = re.compile(r"\d{1,5}/")
SCHEMES = (LAYOUT, REGISTRY, ENGINE)
# What else skopeo and podman call an image (containers-transports(5)), and what leads to it.
_TRANSPORTS = {
    "containers-storage": "`podman push {name} oci:DIR`, then name oci:DIR",
    "docker-archive": "`docker load --input {file}`, then name docker:NAME:TAG",
    "docker-daemon": "did you mean 'docker:{name}'?",
    "oci-archive": "`mkdir DIR && tar -xf {file} -C DIR`, then name oci:DIR",
    "ostree": "`skopeo copy ostree:{name} oci:DIR`, then name oci:DIR",
    "sif": "`skopeo copy sif:{name} oci:DIR`, then name oci:DIR",
    "tarball": "`docker import {file} NAME:TAG`, then name docker:NAME:TAG",
}


def parse_target(text: str, schemes: Collection[str] = SCHEMES) -> ImageTarget:
    """Parse the location of an image; raises `UsageError` for an invalid one.

    `schemes` are the names of rows: of sinks, or of bases.  The name of a row alone, such as
    `scratch`, is a target too.
    """
    scheme = _scheme_of(text, schemes)
    if scheme == REGISTRY:
        _refuse_misspelt(text, schemes)
        return parse_registry_target(text)
    if scheme == LAYOUT:
        return parse_layout_target(text)
    if text.startswith(f"{ENGINE}://"):
        raise UsageError(
            f"{text!r} names an image of a registry as skopeo does",
            hint=f"did you mean {text.removeprefix(f'{ENGINE}://')!r}?",
        )
    rest = text.removeprefix(f"{scheme}:")
    if scheme == ENGINE:
        parse_reference(rest)
    return ImageTarget(text=text, scheme=scheme, rest=rest)


def parse_layout_target(text: str) -> LayoutTarget:
    """Parse `oci:DIR[:TAG][@DIGEST]`, as a build prints it."""
    rest = text.removeprefix(f"{LAYOUT}:")
    named, at, digest = rest.rpartition("@sha256:")
    if at:
        check_digest(text, f"sha256:{digest}")
    named = named if at else rest
    directory, colon, tag = named.rpartition(":")
    is_tagged = bool(colon) and "/" not in tag
    if not is_tagged:
        directory = named
    if not directory or (is_tagged and not tag):
        raise UsageError(
            f"'oci:{rest}' names no directory", hint="write it as oci:DIR or oci:DIR:TAG"
        )
    return LayoutTarget(
        text=text,
        scheme=LAYOUT,
        rest=rest,
        directory=Path(directory).absolute(),
        tag=tag if is_tagged else None,
        digest=f"sha256:{digest}" if at else None,
    )


def parse_registry_target(text: str) -> RegistryTarget:
    """Parse `HOST/REPOSITORY[:TAG][@DIGEST]`; a missing host means Docker Hub."""
    return RegistryTarget(text=text, scheme=REGISTRY, rest=text, image=parse_reference(text))


def layout_of(target: ImageTarget) -> LayoutTarget:
    """Narrow a target whose scheme is `oci`."""
    if not isinstance(target, LayoutTarget):
        raise TypeError(f"{target.text!r} is not in a layout")
    return target


def registry_of(target: ImageTarget) -> RegistryTarget:
    """Narrow a target whose scheme is `registry`."""
    if not isinstance(target, RegistryTarget):
        raise TypeError(f"{target.text!r} is not in a registry")
    return target


def directory_of(target: ImageTarget) -> Path:
    """Return the directory of `dir:DIR`; raise `UsageError` where it names none."""
    if not target.rest or target.rest.startswith("//"):
        raise UsageError(f"{target.text!r} names no directory", hint="write it as dir:DIR")
    return Path(target.rest).absolute()


def bucket_of(target: ImageTarget) -> BucketPlace:
    """Return the place of `s3://BUCKET/PREFIX`; raise `UsageError` where it names no bucket."""
    place = parse_bucket_place(target.text)
    bucket = place.bucket if place is not None else ""
    if place is None or (why := why_no_bucket(bucket)):
        reason = f": {why}" if bucket else ""
        raise UsageError(
            f"{target.text!r} names no bucket{reason}", hint="write it as s3://BUCKET/PREFIX"
        )
    return place


def engine_name(text: str) -> str:
    """Return the name of an image in the Docker Engine, written with `docker:` or without it."""
    return text.removeprefix(f"{ENGINE}:")


def names_registry(text: str) -> bool:
    """Return whether an image's name begins with a registry's host, as a Docker Engine reads it."""
    host, slash, _ = text.partition("/")
    return bool(slash) and ("." in host or ":" in host or host == "localhost")


def is_relative(text: str) -> bool:
    """Return whether a text names another place in another working directory."""
    scheme, colon, rest = text.partition(":")
    return bool(colon) and scheme in (LAYOUT, DIRECTORY) and not rest.startswith("/")


def is_image(text: str) -> bool:
    """Whether it names an image and no model: `docker:NAME`, `NAME@sha256:…` or `oci:DIR`."""
    return text.startswith((f"{ENGINE}:", f"{LAYOUT}:")) or "@sha256:" in text


def started_name(target: ImageTarget, command: str) -> str:
    """Return the name of an image for a command that starts it, which a Docker Engine must have."""
    if target.scheme == ENGINE or isinstance(target, RegistryTarget):
        return target.rest
    directory = target.directory if isinstance(target, LayoutTarget) else Path(target.rest)
    name = f"docker:{directory.name or 'NAME'}:latest"
    way = f"load it first: `packager copy {target.text} {name}`, then `packager {command} {name}`"
    if not isinstance(target, LayoutTarget):
        way = f"build the image with --output {name}, then `packager {command} {name}`"
    raise UsageError(f"{target.text!r} is no image of a Docker Engine", hint=way)


def is_archive(text: str) -> bool:
    """Whether it is a file `*.tar`, and no image."""
    return text.endswith(".tar") and _scheme_of(text, SCHEMES) == REGISTRY


def _refuse_misspelt(text: str, schemes: Collection[str]) -> None:
    """Refuse what would be looked for on Docker Hub, and surely means something else.

    That is a misspelt scheme such as `dokcer:`, and a file or a layout of this machine.
    """
    prefix, colon, rest = text.partition(":")
    if colon and prefix in _TRANSPORTS:
        hint = _TRANSPORTS[prefix].format(name=rest, file=rest.partition(":")[0])
        raise UsageError(f"{text!r} is an image of another kind, {prefix}", hint=hint)
    is_host = "/" in prefix or "." in prefix or _PORT.match(rest) is not None
    if not is_host and (close := _meant(prefix, sorted(set(schemes) - {REGISTRY}))):
        meant = f"{close}:{rest}" if colon else close
        raise UsageError(
            f"{text!r} is of no known kind",
            hint=f"did you mean {meant!r}? an image of Docker Hub is written "
            f"docker.io/library/{text}",
        )
    if is_archive(text) and not is_host:
        raise UsageError(
            f"{text!r} is an archive, not an image",
            hint=f"`docker load --input {text}`, then name docker:NAME:TAG; of a layout "
            f"`mkdir DIR && tar -xf {text} -C DIR`, then name oci:DIR",
        )
    if _is_file(Path(text, "oci-layout")):
        raise UsageError(
            f"{text!r} is a directory of this machine", hint=f"did you mean '{LAYOUT}:{text}'?"
        )
    if _is_file(Path(text, "config.json")):
        raise UsageError(
            f"{text!r} is the directory of a model, not an image",
            hint=f"`packager plan {text}` plans it, `packager build {text}` makes an image",
        )
    if _is_file(Path(text)):
        raise UsageError(
            f"{text!r} is a file of this machine, not an image",
            hint="write an image as oci:DIR, docker:NAME:TAG or HOST/REPOSITORY:TAG",
        )


def _meant(prefix: str, known: Sequence[str]) -> str:
    """Return the scheme that a word is surely meant for: two letters swapped, one wrong."""
    swapped = [name for name in known if sorted(name) == sorted(prefix) and name != prefix]
    close = difflib.get_close_matches(prefix, known, n=1, cutoff=0.8)
    return (*swapped, *close, "")[0]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _scheme_of(text: str, schemes: Collection[str]) -> str:
    prefix, colon, _ = text.partition(":")
    if prefix not in schemes:
        return REGISTRY
    return REGISTRY if colon and prefix == REGISTRY else prefix

"""Image configuration and manifest: reading a base's, writing ours.

Source of the formats: OCI image specification 1.1 (config.md, manifest.md,
image-index.md) and Docker image manifest version 2, schema 2.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packager.core import documents
from packager.core.documents import NotStrict, shorten
from packager.core.errors import ProtocolFailed, UsageError
from packager.core.image import (
    MEDIA_CONFIG,
    MEDIA_EROFS,
    MEDIA_INDEX,
    MEDIA_LAYER,
    MEDIA_MANIFEST,
    BaseImage,
    Blob,
    Descriptor,
    HealthCheck,
    ImageSpec,
    Layer,
    Platform,
    RuntimeConfig,
    SealedImage,
)

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER_TYPES = {
    "application/vnd.docker.image.rootfs.diff.tar": MEDIA_LAYER,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": MEDIA_LAYER + "+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd": MEDIA_LAYER + "+zstd",
}
DOCKER_LAYERS = {ours: docker for docker, ours in LAYER_TYPES.items()}
MANIFEST_TYPES = (MEDIA_MANIFEST, DOCKER_MANIFEST)
INDEX_TYPES = (MEDIA_INDEX, DOCKER_INDEX)
OWN = "dev.packager."  # prefix of labels and annotations that only packager writes
OWN_HISTORY = "packager: "  # how the history entry of a layer of ours begins
LONGEST_DOCUMENT = 8 * 1024 * 1024  # bytes: configurations that carry a software bill
LARGEST_BLOB = 2**63 - 1  # what the specification's int64 holds
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


def sha256(data: bytes) -> str:
    """Return the digest of `data` as registries spell it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageManifest:
    """An image manifest whose fields have the types that the specification gives them."""

    config: Descriptor
    layers: tuple[Descriptor, ...]
    document: Mapping[str, Any]  # all of it, unknown fields included


def parse_manifest(reference: str, manifest: bytes) -> ImageManifest:
    """Parse an image manifest of schema 2; an index and a document that is both are refused.

    A document that is manifest and index would mean two images to two tools (CVE-2021-41190).
    """
    parsed = parse_object(manifest, f"manifest of {reference!r}")
    layers = parsed.get("layers")
    if not _is_schema_2(parsed) or not isinstance(layers, list) or "manifests" in parsed:
        raise ProtocolFailed(
            f"{reference!r} has no image manifest of schema 2",
            hint="push the image again with a current tool; schema 1 is not supported",
        )
    return ImageManifest(
        config=parse_descriptor(parsed.get("config")),
        layers=tuple(parse_descriptor(entry) for entry in layers),
        document=parsed,
    )


def is_index(reference: str, document: bytes) -> bool:
    """Return whether a document is an index rather than a manifest; raises where it is neither."""
    parsed = parse_object(document, f"manifest of {reference!r}")
    if ("manifests" in parsed) == ("layers" in parsed):
        raise ProtocolFailed(
            f"the manifest of {reference!r} is neither a manifest nor an index",
            hint="push the image again with a current tool; schema 1 is not supported",
        )
    return "manifests" in parsed


def parse_index(index: bytes) -> tuple[Mapping[str, Any], ...]:
    """Parse an image index; each entry is an object, its platform and annotations are ones too."""
    parsed = parse_object(index, "image index")
    entries = parsed.get("manifests", [])
    if not isinstance(entries, list):
        raise _broken("image index", "manifests", entries)
    for entry in entries:
        if not isinstance(entry, dict):
            raise _broken("image index", "an entry", entry)
        for name in ("platform", "annotations"):
            _check("image index", entry, name, dict)
        for name in ("os", "architecture"):
            _check("image index", entry.get("platform") or {}, name, str)
    return tuple(entries)


def parse_base(
    reference: str,
    manifest: bytes,
    config: bytes,
    *,
    locate: Callable[[Descriptor], Blob],
    mount_from: str = "",
) -> BaseImage:
    """Return the base image described by a manifest and its configuration.

    `locate` says from where a layer's bytes can be read.  Docker schema 2 media
    types become their OCI equivalents; digests do not change.
    """
    parsed = parse_manifest(reference, manifest)
    if any(layer.media_type.startswith(MEDIA_EROFS) for layer in parsed.layers):
        raise UsageError(
            f"{reference!r} names an image by the manifest of its file systems",
            hint="name its tag, or its plain manifest: `packager inspect` of the tag shows it",
        )
    settings = parse_config(config)
    diff_ids = (settings.get("rootfs") or {}).get("diff_ids") or []
    if len(diff_ids) != len(parsed.layers):
        raise ProtocolFailed(
            f"{reference!r} has {len(parsed.layers)} layers but {len(diff_ids)} diff ids",
            hint="the image is damaged: have it built or pushed again",
        )
    layers = tuple(
        _base_layer(layer, diff_id, locate, mount_from)
        for layer, diff_id in zip(parsed.layers, diff_ids, strict=True)
    )
    return BaseImage(
        reference=reference,
        digest=sha256(manifest),
        platform=Platform(settings.get("os") or "linux", settings.get("architecture") or "amd64"),
        layers=layers,
        config=settings,
    )


def scratch(platform: Platform) -> BaseImage:
    """The empty base: the image holds the model and its configuration only."""
    return BaseImage(
        reference="scratch",
        digest="",
        platform=platform,
        layers=(),
        config={"os": platform.os, "architecture": platform.architecture},
    )


def seal(image: ImageSpec, layers: Sequence[Descriptor]) -> SealedImage:
    """Write configuration and manifest for layers whose digests are now known.

    `layers` are the descriptors of `image.layers`, in the same order.
    """
    return seal_config(image, layers, make_config(image, layers))


def seal_config(
    image: ImageSpec, layers: Sequence[Descriptor], settings: Mapping[str, Any]
) -> SealedImage:
    """Write the manifest of a configuration."""
    config = canonical_json(settings)
    config_descriptor = Descriptor(media_type=MEDIA_CONFIG, digest=sha256(config), size=len(config))
    body: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": config_descriptor.to_json(),
        "layers": [layer.to_json() for layer in layers],
    }
    annotations = dict(image.annotations)
    if image.base.digest:
        annotations["org.opencontainers.image.base.digest"] = image.base.digest
    if annotations:
        body["annotations"] = dict(sorted(annotations.items()))
    manifest = canonical_json(body)
    return SealedImage(
        config=config,
        manifest=manifest,
        config_descriptor=config_descriptor,
        manifest_descriptor=Descriptor(
            media_type=MEDIA_MANIFEST, digest=sha256(manifest), size=len(manifest)
        ),
        layers=tuple(layers),
    )


def make_config(image: ImageSpec, layers: Sequence[Descriptor]) -> dict[str, Any]:
    """Return the base's configuration with our settings merged in; unknown fields stay."""
    merged = dict(image.base.config)
    merged["created"] = image.created
    merged["config"] = merge_runtime(merged.get("config") or {}, image.runtime)
    diff_ids = [
        layer.diff_id or descriptor.digest
        for layer, descriptor in zip(image.layers, layers, strict=True)
    ]
    merged["rootfs"] = {"type": "layers", "diff_ids": diff_ids}
    merged["history"] = _history(image)
    # Docker keeps facts about the container that built the base here; they are not ours.
    for stale in ("container", "container_config", "docker_version", "id", "parent"):
        merged.pop(stale, None)
    return merged


def _history(image: ImageSpec) -> list[Any]:
    """The base's history where its layers are, one entry for each of ours around it."""
    ours = [layer.role != "base" for layer in image.layers]
    below = ours.index(False) if False in ours else 0
    entries = [
        {"created": image.created, "created_by": layer.created_by}
        for layer in image.layers
        if layer.role != "base"
    ]
    return [*entries[:below], *_base_history(image.base), *entries[below:]]


def merge_runtime(base: Mapping[str, Any], ours: RuntimeConfig) -> dict[str, Any]:
    """Merge run-time settings: ours win by name, the base's order and rest stay."""
    merged = dict(base)
    env = dict(entry.split("=", 1) for entry in base.get("Env") or () if "=" in entry)
    env.update(ours.env)
    if env:
        merged["Env"] = [f"{name}={value}" for name, value in env.items()]
    if ours.entrypoint:
        # A new entry point makes the base's default arguments meaningless.
        merged["Entrypoint"] = list(ours.entrypoint)
        merged.pop("Cmd", None)
        if ours.cmd:
            merged["Cmd"] = list(ours.cmd)
    elif ours.cmd:
        merged["Cmd"] = list(ours.cmd)
    labels = {**without_own(base.get("Labels")), **ours.labels}
    if labels:
        merged["Labels"] = dict(sorted(labels.items()))
    if ours.port is not None:
        merged["ExposedPorts"] = {**(base.get("ExposedPorts") or {}), f"{ours.port}/tcp": {}}
    if ours.health is not None:
        merged["Healthcheck"] = _healthcheck(ours.health)
    elif ours.entrypoint:
        merged.pop("Healthcheck", None)  # it queries a server that is not started
    return merged


def _healthcheck(health: HealthCheck) -> dict[str, Any]:
    """Write a health check as Docker reads it; the OCI specification has none, and allows it."""
    nanoseconds = 10**9
    return {
        "Test": ["CMD", *health.command],
        "Interval": health.interval_s * nanoseconds,
        "Timeout": health.timeout_s * nanoseconds,
        "StartPeriod": health.start_period_s * nanoseconds,
        "StartInterval": health.start_interval_s * nanoseconds,
        "Retries": health.retries,
    }


def without_own(stated: object) -> dict[str, Any]:
    """Return others' labels or annotations, without those that look like ours."""
    found = stated if isinstance(stated, Mapping) else {}
    return {name: value for name, value in found.items() if not name.startswith(OWN)}


def _base_history(base: BaseImage) -> list[Any]:
    """The base's history, or one entry a layer where it has none that agrees.

    An entry that reads like one of ours is marked: `docker:` images have no annotations,
    and their layers are told apart by it.
    """
    history = [_marked(entry) for entry in base.config.get("history") or ()]
    if sum(not entry.get("empty_layer", False) for entry in history) == len(base.layers):
        return history
    return [{"created_by": f"base {base.digest}"} for _ in base.layers]


def _marked(entry: Any) -> Any:
    made_by = entry.get("created_by") or ""
    return {**entry, "created_by": f"base: {made_by}"} if made_by.startswith(OWN_HISTORY) else entry


def _base_layer(
    descriptor: Descriptor,
    diff_id: str,
    locate: Callable[[Descriptor], Blob],
    mount_from: str,
) -> Layer:
    return Layer(
        role="base",
        blob=locate(descriptor),
        media_type=LAYER_TYPES.get(descriptor.media_type, descriptor.media_type),
        digest=descriptor.digest,
        diff_id=diff_id,
        mount_from=mount_from,
        annotations=without_own(descriptor.annotations),
    )


def parse_config(config: bytes) -> dict[str, Any]:
    """Parse an image configuration that ours is made of; every field in it has its type.

    A null is as good as a missing field: Go writes one for an empty list.
    """
    what = "image configuration"
    parsed = parse_object(config, what)
    for name in ("created", "author", "architecture", "os", "variant"):
        _check(what, parsed, name, str)
    _check_runtime(what, _check(what, parsed, "config", dict) or {})
    rootfs = _check(what, parsed, "rootfs", dict) or {}
    for diff_id in _check(what, rootfs, "diff_ids", list) or ():
        if not is_digest(diff_id):
            raise _broken(what, "a diff id", diff_id)
    for entry in _check(what, parsed, "history", list) or ():
        if not isinstance(entry, dict):
            raise _broken(what, "an entry of history", entry)
        _check(what, entry, "empty_layer", bool)
        for name in ("created", "created_by", "author", "comment"):
            _check(what, entry, name, str)
    return parsed


def diff_ids_of(config: bytes) -> list[str]:
    """Return the digests of an image's uncompressed layers; an empty list where it names none."""
    found = (parse_config(config).get("rootfs") or {}).get("diff_ids")
    return list(found or ())


def _check_runtime(what: str, runtime: Mapping[str, Any]) -> None:
    for name in ("User", "WorkingDir", "StopSignal"):
        _check(what, runtime, name, str)
    for name in ("Env", "Entrypoint", "Cmd", "Shell", "OnBuild"):
        for item in _check(what, runtime, name, list) or ():
            if not isinstance(item, str):
                raise _broken(what, f"an entry of {name}", item)
    for label in (_check(what, runtime, "Labels", dict) or {}).values():
        if not isinstance(label, str):
            raise _broken(what, "a label", label)
    _check(what, runtime, "Healthcheck", dict)
    for name in ("ExposedPorts", "Volumes"):
        for item in (_check(what, runtime, name, dict) or {}).values():
            if not isinstance(item, dict | None):
                raise _broken(what, f"an entry of {name}", item)


def parse_descriptor(entry: object) -> Descriptor:
    """Parse a descriptor of an untrusted document; annotations that are not text are left out."""
    if not isinstance(entry, dict):
        raise _broken("descriptor", "it", entry)
    digest, size = entry.get("digest"), entry.get("size")
    media_type, annotations = entry.get("mediaType"), entry.get("annotations")
    if not isinstance(digest, str) or not is_digest(digest):
        raise _broken("descriptor", "digest", digest)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= LARGEST_BLOB:
        raise _broken("descriptor", "size", size)
    if not isinstance(media_type, str):
        raise _broken("descriptor", "mediaType", media_type)
    return Descriptor(
        media_type=media_type,
        digest=digest,
        size=size,
        annotations=_texts(annotations),
    )


def is_digest(text: object) -> bool:
    """Whether a value is a digest as registries spell it, safe to be a part of a path."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def parse_object(document: bytes, what: str) -> dict[str, Any]:
    """A JSON object of a registry or layout; `what` names it in errors."""
    try:
        return documents.parse_object(document, max_bytes=LONGEST_DOCUMENT)
    except NotStrict as error:
        raise ProtocolFailed(
            f"the {what} cannot be used: {error}", hint="write or push the image again"
        ) from error


def shorten_list(texts: Sequence[str], most: int = 20) -> str:
    """Join at most `most` untrusted words for a message, each shortened."""
    shown = [shorten(text)[1:-1] for text in texts[:most]]
    return ", ".join([*shown, "…"] if len(texts) > most else shown)


def _is_schema_2(document: Mapping[str, Any]) -> bool:
    version = document.get("schemaVersion")
    return isinstance(version, int) and not isinstance(version, bool) and version == 2


def _texts(annotations: object) -> dict[str, str]:
    if not isinstance(annotations, dict):
        return {}
    return {name: text for name, text in annotations.items() if isinstance(text, str)}


def _check(what: str, document: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a field that is missing, null or of this type."""
    value = document.get(name)
    if value is not None and not isinstance(value, kind):
        raise _broken(what, name, value)
    return value


def _broken(what: str, name: str, value: object) -> ProtocolFailed:
    return ProtocolFailed(
        f"broken {what}: {name} is {shorten(value)}",
        hint="the image was not made by a tool that follows the OCI specification; build it again",
    )


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """Serialize in the one canonical form that digests depend on."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def check_layer_count(image: ImageSpec, limit: int) -> None:
    """Refuse an image that engines could not mount."""
    if len(image.layers) > limit:
        raise UsageError(
            f"the image would have {len(image.layers)} layers; engines stop at about {limit}",
            hint="use a base image with fewer layers",
        )

"""Image configuration and manifest: reading a base's, writing ours.

Source of the formats: OCI image specification 1.1 (config.md, manifest.md,
image-index.md) and Docker image manifest version 2, schema 2.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packager.core.image import (
    MEDIA_CONFIG,
    MEDIA_INDEX,
    MEDIA_LAYER,
    MEDIA_MANIFEST,
    BaseImage,
    Blob,
    Descriptor,
    ImageSpec,
    Layer,
    Platform,
    RuntimeConfig,
    SealedImage,
)
from packager.errors import NotFound, ProtocolFailed, UsageError

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
_LAYER_TYPES = {
    "application/vnd.docker.image.rootfs.diff.tar": MEDIA_LAYER,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": MEDIA_LAYER + "+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd": MEDIA_LAYER + "+zstd",
}
MANIFEST_TYPES = (MEDIA_MANIFEST, DOCKER_MANIFEST)
INDEX_TYPES = (MEDIA_INDEX, DOCKER_INDEX)
OWN = "dev.packager."  # labels and annotations of this name are ours to write, nobody else's
OWN_HISTORY = "packager: "  # how the history entry of a layer of ours begins


def sha256(data: bytes) -> str:
    """Digest of `data` as registries spell it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def choose_platform(index: bytes, platform: Platform) -> Descriptor:
    """Pick the manifest for `platform` from an index; the first match wins.

    Attestation manifests (`unknown/unknown`) never match.
    """
    entries = parse_object(index, "image index").get("manifests") or []
    offered = []
    for entry in entries:
        found = entry.get("platform") or {}
        offered.append(f"{found.get('os')}/{found.get('architecture')}")
        if (found.get("os"), found.get("architecture")) == (platform.os, platform.architecture):
            return parse_descriptor(entry)
    if len(entries) == 1 and not entries[0].get("platform"):
        return parse_descriptor(entries[0])
    raise NotFound(
        f"the image has no manifest for {platform}",
        hint=f"it offers {', '.join(sorted(set(offered))) or 'nothing'}",
    )


def offered_platforms(index: bytes) -> tuple[str, ...]:
    """The platforms that an index has images for, without its attestations."""
    entries = parse_object(index, "image index").get("manifests") or []
    platforms = [entry.get("platform") or {} for entry in entries]
    return tuple(
        f"{found.get('os')}/{found.get('architecture')}"
        for found in platforms
        if found.get("os", "unknown") != "unknown"
    )


def parse_base(
    reference: str,
    manifest: bytes,
    config: bytes,
    *,
    locate: Callable[[Descriptor], Blob],
    mount_from: str = "",
) -> BaseImage:
    """Make a base image of its manifest and configuration.

    `locate` says from where a layer's bytes can be read.  Docker schema 2 media
    types become their OCI equivalents; digests do not change.
    """
    parsed = parse_object(manifest, "image manifest")
    settings = parse_object(config, "image configuration")
    if parsed.get("schemaVersion") != 2 or "layers" not in parsed:
        raise ProtocolFailed(
            f"{reference!r} has a manifest of schema {parsed.get('schemaVersion')!r}",
            hint="push the image again with a current tool; schema 1 is not supported",
        )
    diff_ids = (settings.get("rootfs") or {}).get("diff_ids") or []
    if len(diff_ids) != len(parsed["layers"]):
        raise ProtocolFailed(
            f"{reference!r} has {len(parsed['layers'])} layers but {len(diff_ids)} diff ids"
        )
    layers = tuple(
        _base_layer(parse_descriptor(entry), diff_id, locate, mount_from)
        for entry, diff_id in zip(parsed["layers"], diff_ids, strict=True)
    )
    return BaseImage(
        reference=reference,
        digest=sha256(manifest),
        platform=Platform(
            str(settings.get("os", "linux")), str(settings.get("architecture", "amd64"))
        ),
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
    config = canonical_json(_config(image, layers))
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


def _config(image: ImageSpec, layers: Sequence[Descriptor]) -> dict[str, Any]:
    """The base's configuration with our settings merged in; unknown fields stay."""
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
    return merged


def without_own(stated: object) -> dict[str, Any]:
    """Labels or annotations of somebody else, without those that would pass for ours."""
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
    made_by = str(entry.get("created_by", ""))
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
        media_type=_LAYER_TYPES.get(descriptor.media_type, descriptor.media_type),
        digest=descriptor.digest,
        diff_id=diff_id,
        mount_from=mount_from,
        annotations=without_own(descriptor.annotations),
    )


def parse_descriptor(entry: Any) -> Descriptor:
    """A descriptor of someone's document, checked."""
    try:
        digest, size = str(entry["digest"]), int(entry["size"])
        media_type = str(entry["mediaType"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolFailed(f"broken descriptor in an image document: {error}") from error
    if not _is_digest(digest) or size < 0:
        raise ProtocolFailed(f"broken descriptor in an image document: {digest!r}, {size} bytes")
    return Descriptor(
        media_type=media_type,
        digest=digest,
        size=size,
        annotations=entry.get("annotations") or {},
    )


def _is_digest(text: str) -> bool:
    algorithm, _, digits = text.partition(":")
    return (
        algorithm == "sha256"
        and len(digits) == 64
        and all(character in "0123456789abcdef" for character in digits)
    )


def parse_object(document: bytes, what: str) -> dict[str, Any]:
    """A JSON object; `what` names it in errors."""
    try:
        parsed = json.loads(document)
    except ValueError as error:
        raise ProtocolFailed(f"the {what} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ProtocolFailed(f"the {what} is not a JSON object")
    return parsed


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """One spelling for one value: digests depend on it."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def check_layer_count(image: ImageSpec, limit: int) -> None:
    """Refuse an image that engines could not mount."""
    if len(image.layers) > limit:
        raise UsageError(
            f"the image would have {len(image.layers)} layers; engines stop at about {limit}",
            hint="use a base image with fewer layers",
        )

"""Other images from the same layers, which are not read or stored again.

`weights` is a plain image of the model's and the draft's files, for Kubernetes image volumes.
An adapter alone is its layer, at the place where the serving image has it.
`modelpack` is the model as a CNCF ModelPack artifact.  `kserve` is `weights` with one layer more, a
link at the place where KServe looks.  The three do not depend on instance, engine, base or time:
images that serve the same weights have the same views, byte for byte.  `modelcar` is the whole
image with that link: KServe's sidecar runs a shell of it.  `docker` is the whole image with
Docker's media types, for services that take no other.

The link is relative: KServe reads it below the root of a mounted image, and
through /proc/PID/root of the sidecar.

Source of the ModelPack format: github.com/modelpack/model-spec, docs/spec.md
and docs/config.md (2026-06-08).
Source of Docker's types: distribution.github.io/distribution/spec/manifest-v2-2.
Who takes no other: Amazon SageMaker, github.com/aws/amazon-sagemaker-feedback, issue 180
(2025-04), and github.com/mlflow/mlflow, issue 13834 (2024-11).
Source of KServe's `/models`: github.com/kserve/kserve, pull requests 5558
(`oci+native://`, subPath `models`) and 3110 (modelcar) (0.20, 2026-06).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packager.core.errors import UsageError
from packager.core.image import MEDIA_CONFIG, MEDIA_LAYER, MEDIA_MANIFEST, Blob, Descriptor, Inline
from packager.core.serving import MODEL_DIR
from packager.images.oci import (
    DOCKER_CONFIG,
    DOCKER_LAYERS,
    DOCKER_MANIFEST,
    canonical_json,
    sha256,
    without_own,
)
from packager.images.remote_layers import ROLE
from packager.images.stored import StoredImage, StoredLayer, parse_stored
from packager.images.tar import make_link

MODELPACK_MANIFEST = "application/vnd.cncf.model.manifest.v1+json"
MODELPACK_CONFIG = "application/vnd.cncf.model.config.v1+json"
_MODELPACK_LAYERS = {
    "weights": "application/vnd.cncf.model.weight.v1.tar",
    "model": "application/vnd.cncf.model.weight.config.v1.tar",
    "adapter": "application/vnd.cncf.model.weight.v1.tar",
}
_DOCKER_TAKES = (DOCKER_LAYERS[MEDIA_LAYER], DOCKER_LAYERS[f"{MEDIA_LAYER}+gzip"])
_PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_QUANTIZATIONS = frozenset({"awq", "gptq", "fp8", "smoothquant"})
ADAPTER_VIEW = "adapter"
ADAPTER = "dev.packager.adapter"  # a label: what the adapter is, and was made for
TITLE = "org.opencontainers.image.title"


def weights_view(image: StoredImage) -> StoredImage:
    """The model, its draft and adapters as a plain image, where the serving image has them."""
    layers = _chosen(image, ("weights", "model", "draft", "adapter"))
    return _plain(image, layers, "weights")


def kserve_view(image: StoredImage) -> StoredImage:
    """The weights view with the link: what KServe mounts as an image volume (`oci+native://`)."""
    layers = _chosen(image, ("weights", "model", "draft", "adapter"))
    return _plain(image, [*layers, _LINK], "kserve")


def modelcar_view(image: StoredImage) -> StoredImage:
    """The whole image with the link: what KServe runs as a sidecar (`oci://`)."""
    _chosen(image, ("weights", "model"))
    if not any(layer.role == "base" for layer in image.layers):
        raise UsageError(
            f"{image.reference!r} has no base, and so no shell for a sidecar",
            hint="use --view kserve: KServe mounts it without a shell, as oci+native://…",
        )
    if _LINK.diff_id in {layer.diff_id for layer in image.layers}:
        return image
    config = {
        **image.config,
        "rootfs": {
            **image.config["rootfs"],
            "diff_ids": [*image.config["rootfs"]["diff_ids"], _LINK.diff_id],
        },
        "history": [*(image.config.get("history") or ()), {"created_by": _LINK.created_by}],
    }
    layers = [_described(layer) for layer in (*image.layers, _LINK)]
    return _make(image, config, image.sealed.config_descriptor.media_type, layers)


def docker_view(image: StoredImage) -> StoredImage:
    """The whole image with Docker's media types; configuration and layers keep their bytes."""
    if not image.is_runnable:
        raise UsageError(
            f"{image.reference!r} is no image that an engine can start",
            hint="make the docker view of the serving image",
        )
    layers = []
    for layer in image.layers:
        found = layer.descriptor.media_type
        layers.append(
            {
                "mediaType": DOCKER_LAYERS.get(found, found),
                "size": layer.size,
                "digest": layer.descriptor.digest,
            }
        )
        if layers[-1]["mediaType"] not in _DOCKER_TAKES:
            raise UsageError(
                f"Docker's manifests know no layers of {found!r}",
                hint="build the image without --compression, on a base without such layers",
            )
    config = image.sealed.config_descriptor
    manifest = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": {"mediaType": DOCKER_CONFIG, "size": config.size, "digest": config.digest},
        "layers": layers,
    }
    return parse_stored(image.reference, canonical_json(manifest), image.sealed.config)


def modelpack_view(image: StoredImage) -> StoredImage:
    """The model as a ModelPack. A draft is another model and is left out."""
    layers = _chosen(image, ("weights", "model", "adapter"))
    record = image.record
    descriptor = {
        name: str(_model(image)[name]) for name in ("name", "revision") if _model(image).get(name)
    }
    technical = {"format": "safetensors"}
    precision = _PRECISIONS.get(str(record.get("precision")))
    if precision:
        technical["precision"] = precision
    request = record.get("request")
    quantized = request.get("quantize") if isinstance(request, dict) else None
    if quantized in _QUANTIZATIONS:
        technical["quantization"] = str(quantized)
    config = {
        "descriptor": descriptor,
        "config": technical,
        "modelfs": {"type": "layers", "diffIds": [layer.diff_id for layer in layers]},
    }
    spelled = [replace(_described(layer), media_type=_modelpack_type(layer)) for layer in layers]
    return _make(image, config, MODELPACK_CONFIG, spelled, artifact_type=MODELPACK_MANIFEST)


def adapter_view(image: StoredImage, name: str) -> StoredImage:
    """One adapter of an image as an image of its own, which other deployments mount."""
    listed = image.record.get("adapters")
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    names = [str(one.get("name")) for one in entries]
    layers = [layer for layer in image.layers if layer.role == "adapter" and layer.diff_id]
    if name not in names or len(layers) != len(entries):
        has = ", ".join(names) if layers else "none"
        raise UsageError(
            f"{image.reference!r} has no adapter {name[:80]!r}",
            hint=f"it has: {has[:300]}; `packager build --adapter NAME=REF` adds one",
        )
    at = names.index(name)
    about = {
        **{field: entries[at].get(field, "") for field in ("name", "directory", "rank")},
        "base": model_words(_model(image)),
        "engine": image.record.get("engine", ""),
    }
    labels = {ADAPTER: canonical_json(about).decode(), TITLE: name}
    return _plain(image, [layers[at]], ADAPTER_VIEW, labels)


View = Callable[[StoredImage], StoredImage]
VIEWS: Mapping[str, View] = {
    "weights": weights_view,
    "modelpack": modelpack_view,
    "kserve": kserve_view,
    "modelcar": modelcar_view,
    "docker": docker_view,
}


def view_of(view: str | None, adapter: str | None = None) -> View | None:
    """Return what makes another image of the same layers; None for the image itself."""
    if view is not None and view not in VIEWS:
        raise UsageError(f"there is no view {view!r}", hint=f"views: {', '.join(VIEWS)}")
    if adapter is None:
        return VIEWS[view] if view else None
    if view is not None:
        raise UsageError("--view and --adapter-only are two images", hint="leave one of them out")
    return lambda image: adapter_view(image, adapter)


def _link_layer(blob: Blob) -> StoredLayer:
    data = b"".join(segment.data for segment in blob.segments if isinstance(segment, Inline))
    digest = sha256(data)
    return StoredLayer(
        descriptor=Descriptor(media_type=MEDIA_LAYER, digest=digest, size=len(data)),
        role="config",
        created_by="packager: link /models to the model",
        diff_id=digest,
    )


_LINK_BLOB = make_link("models", MODEL_DIR.lstrip("/"))
_LINK = _link_layer(_LINK_BLOB)
OWN_LAYERS: Mapping[str, Blob] = {_LINK.descriptor.digest: _LINK_BLOB}  # what views add, by digest


def _plain(
    image: StoredImage,
    layers: Sequence[StoredLayer],
    view: str,
    stated: Mapping[str, str] | None = None,
) -> StoredImage:
    """An image of these layers that states only the model, or what is `stated`."""
    labels = {"dev.packager.view": view, **(stated or {})}
    name = _model(image).get("name")
    if name and not stated:
        labels[TITLE] = str(name)
        if _model(image).get("revision"):
            labels["org.opencontainers.image.revision"] = str(_model(image)["revision"])
    config: dict[str, Any] = {
        "architecture": image.platform.architecture,
        "os": image.platform.os,
        "config": {"Labels": dict(sorted(labels.items()))},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created_by": layer.created_by} for layer in layers],
    }
    return _make(image, config, MEDIA_CONFIG, [_described(layer) for layer in layers])


def _chosen(image: StoredImage, roles: Sequence[str]) -> list[StoredLayer]:
    layers = [layer for layer in image.layers if layer.role in roles]
    if not any(layer.role == "weights" for layer in layers):
        raise UsageError(
            f"{image.reference!r} holds no layer of weights",
            hint="name an image that packager built with baked weights; "
            "`packager inspect` shows its layers",
        )
    if not all(layer.diff_id for layer in layers):
        raise UsageError(
            f"{image.reference!r} does not say what its layers are uncompressed",
            hint="make views of the serving image, not of another view",
        )
    return layers


def _described(layer: StoredLayer) -> Descriptor:
    """The layer's descriptor in a manifest of ours: what others say in our words stays behind."""
    role = {} if layer.role == "base" else {ROLE: layer.role}
    annotations = {**without_own(layer.descriptor.annotations), **role}
    return replace(layer.descriptor, annotations=annotations)


def model_words(model: Mapping[str, Any]) -> str:
    """Return which model a record names: `org/name@revision`."""
    return f"{model.get('name') or ''}@{model.get('revision') or ''}"


def _model(image: StoredImage) -> Mapping[str, Any]:
    found = image.record.get("model")
    return found if isinstance(found, dict) else {}


def _modelpack_type(layer: StoredLayer) -> str:
    """The media type for the layer's content, compressed as it is."""
    suffix = layer.descriptor.media_type.removeprefix(MEDIA_LAYER)
    return _MODELPACK_LAYERS[layer.role] + (suffix if suffix in ("+gzip", "+zstd") else "")


def _make(
    image: StoredImage,
    config: Mapping[str, Any],
    config_type: str,
    layers: Sequence[Descriptor],
    *,
    artifact_type: str = "",
) -> StoredImage:
    data = canonical_json(config)
    described = Descriptor(media_type=config_type, digest=sha256(data), size=len(data))
    manifest: dict[str, Any] = {"schemaVersion": 2, "mediaType": MEDIA_MANIFEST}
    if artifact_type:
        manifest["artifactType"] = artifact_type
    manifest["config"] = described.to_json()
    manifest["layers"] = [layer.to_json() for layer in layers]
    return parse_stored(image.reference, canonical_json(manifest), data)

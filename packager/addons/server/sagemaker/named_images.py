"""Images that a job's techniques name, and the image that serves its result.

On AWS such an image runs the work.  Here it says what the result is for: the catalog's is taken
with its version, of another that AWS documents the family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.sagemaker.documented import DocumentedImage, find_image, nearest_image
from packager.addons.server.sagemaker.environment import Wishes
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.sources import Document, SourceModel
from packager.catalog.containers import containers
from packager.core.errors import UsageError
from packager.core.facts import ContainerFacts
from packager.core.references import RegistryTarget
from packager.core.text import escape
from packager.engines.trtllm import ENGINE as TENSORRT
from packager.images.target import parse_registry_target

COMPILATION = "ModelCompilationConfig"
EMPTY_BASE = "scratch"  # it has no engine of its own: the named image reads the files
Image = ContainerFacts | DocumentedImage


def compiler_of(instance: str, wishes: Wishes, settings: JobSettings, image: Image | None) -> str:
    """Return the compiler of the caches that the engine would make at its first start."""
    if instance.startswith(("ml.inf", "ml.trn")):
        return "neuron"
    named = image if settings.instance is None else None
    is_tensorrt = wishes.is_tensorrt or (named is not None and named.engine == TENSORRT)
    return "tensorrt_llm" if is_tensorrt else "vllm_cache"


def image_fields(
    configs: Mapping[str, Document],
    wishes: Wishes,
    settings: JobSettings,
    named: Image | None,
) -> dict[str, str]:
    """Return family and version of the serving image; the planner's where none is named."""
    if settings.instance is not None or settings.base not in (None, EMPTY_BASE):
        return {"family": wishes.engine} if wishes.engine else {}
    if wishes.is_tensorrt and (named is None or named.engine != TENSORRT):
        if COMPILATION not in configs:
            raise ValidationRefused(f"OPTION_ROLLING_BATCH 'trtllm' needs {COMPILATION}")
        named = _tensorrt()
    if named is not None:
        if wishes.engine and wishes.engine != named.family and named.family:
            raise ValidationRefused(
                f"variables for {wishes.engine!r} and an image of {named.family!r} are named"
            )
        if isinstance(named, ContainerFacts):
            return {"family": named.family, "container_version": named.version}
        return {"family": named.family} if named.family else {}
    return {"family": wishes.engine} if wishes.engine else {}


def _tensorrt() -> ContainerFacts:
    return next(image for image in containers() if image.engine == TENSORRT)


def named_image(configs: Mapping[str, Document], model: SourceModel) -> Image | None:
    """Find the image that techniques name, in the catalog or AWS's documents.

    Account and region do not matter.  Of a documented one only the family is known here; one with
    TensorRT-LLM is the catalog's.
    """
    images = {config["Image"] for config in configs.values() if "Image" in config}
    if len(images) > 1:
        raise ValidationRefused("techniques name different images")
    text = next(iter(images), "") or model.image
    if not text:
        return None
    found = _repository_and_tag(text)
    for image in containers():
        if found and found == _repository_and_tag(image.default_base):
            return image
    if not images:
        return None  # the model's own image serves it today: the plan may choose another
    repository, tag = found or (text, "")
    if documented := find_image(repository, tag):
        return _tensorrt() if documented.engine == TENSORRT else documented
    meant = nearest_image(repository, tag)
    raise ValidationRefused(
        f"Image '{escape(text[:255])}' is not one that AWS documents or packager can configure"
        + (f": did you mean {escape(meant)!r}?" if meant else "")
        + "; `packager list containers` shows those that it configures"
    )


def image_notes(
    configs: Mapping[str, Document], image: Image | None, request: Mapping[str, Any]
) -> list[str]:
    """Return log lines about an image that a technique names and that does not serve."""
    named = next((one["Image"] for one in configs.values() if "Image" in one), "")
    if not named:
        return []
    base = request.get("base", EMPTY_BASE)
    if isinstance(image, ContainerFacts) and request.get("container_version"):
        if _repository_and_tag(named) == _repository_and_tag(image.default_base):
            return []
        base = image.default_base
    if base == EMPTY_BASE:
        base = f"the image that the plan chooses for {request['instance']}"
    return [
        f"Image {named}: kept and described; the work is done here, and {base} serves the result"
    ]


def _repository_and_tag(text: str) -> tuple[str, str] | None:
    try:
        target: RegistryTarget = parse_registry_target(text)
    except UsageError:
        return None
    return (target.image.repository, target.image.tag or "") if target.image.tag else None

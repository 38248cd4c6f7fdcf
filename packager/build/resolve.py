"""From names to pinned facts: the last time anything is looked up."""

from __future__ import annotations

from collections.abc import Callable

from packager import __version__
from packager.core.facts import ContainerFacts, Facts
from packager.core.image import BaseImage, Platform
from packager.core.instance import Instance
from packager.core.model import ModelFiles, ScaleValues
from packager.core.request import BuildRequest
from packager.core.samples import Samples
from packager.core.workload import WORKLOADS, Workload, parse_workload
from packager.errors import UsageError
from packager.planning.drafts.known import KnownChoice
from packager.planning.drafts.request import DraftRequest, parse_draft

KnownDraftOf = Callable[[ModelFiles, Instance, ContainerFacts], KnownChoice]


def resolve(
    request: BuildRequest,
    *,
    find_model: Callable[[str], ModelFiles],
    find_instance: Callable[[str], Instance],
    find_container: Callable[[BuildRequest, Instance], ContainerFacts],
    find_base: Callable[[str, Platform], BaseImage] | None,
    find_draft: Callable[[str], ModelFiles] | None = None,
    known_draft: KnownDraftOf | None = None,
    find_samples: Callable[[BuildRequest], Samples | None] = lambda _: None,
    find_evaluation: Callable[[BuildRequest, Samples | None], Samples | None] = lambda *_: None,
    containers: tuple[ContainerFacts, ...] = (),
    read_scales: Callable[[ModelFiles], ScaleValues | None] = lambda _: None,
    read_workload: Callable[[str], Workload] | None = None,
) -> Facts:
    """Pin the model, the instance, the container and, for a build, the base image.

    Cheap and local look-ups go first, so that a typing error costs no download.
    `known_draft` says what `--draft auto` means for a model here, as a request would write it.
    """
    instance = find_instance(request.instance)
    # `g5.xlarge` and `8xh100` are recorded as what they mean: the record is part of the image.
    request = request.model_copy(update={"instance": instance.name})
    container = find_container(request, instance)
    workload = find_workload(request.workload, read_workload)
    samples = find_samples(request)
    evaluation = find_evaluation(request, samples)
    base = None
    if find_base is not None:
        reference = request.base or container.default_base
        if not reference:
            raise UsageError(
                f"no base image is known for {container.family} on {instance.name}",
                hint="name one with --base, or use --base scratch for weights and configuration",
            )
        base = find_base(reference, Platform())
    model = find_model(request.model)
    known = KnownChoice()
    if request.draft == "auto" and known_draft is not None:
        known = known_draft(model, instance, container)
    return Facts(
        request=request,
        model=model,
        instance=instance,
        container=container,
        base=base,
        packager_version=__version__,
        draft=_find_draft(known.reference or request.draft, find_draft),
        draft_reference=known.reference,
        draft_findings=known.findings,
        draft_license=known.license,
        samples=samples,
        evaluation=evaluation,
        containers=containers,
        scales=read_scales(model),
        workload=workload,
    )


def find_workload(asked: str | None, read: Callable[[str], Workload] | None) -> Workload:
    """Return the workload of a name or of counts, or read it from a file of requests."""
    found = parse_workload(asked)
    if found is not None:
        return found
    if read is None or asked is None:
        raise UsageError(f"{asked!r} is no workload", hint=f"choose from {', '.join(WORKLOADS)}")
    return read(asked)


def _find_draft(
    asked: str | None, find_draft: Callable[[str], ModelFiles] | None
) -> ModelFiles | None:
    """Read the draft's files, where it has any. What is no draft, the plan refuses."""
    draft = parse_draft(asked)
    if find_draft is None or not isinstance(draft, DraftRequest) or not draft.reference:
        return None
    return find_draft(draft.reference)

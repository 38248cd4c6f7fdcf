"""Resolution of names into pinned facts: the last look-up of a build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from packager.core.errors import UsageError
from packager.core.facts import ContainerFacts, Facts
from packager.core.findings import Finding
from packager.core.instance import Instance, with_ranks
from packager.core.model import HeadValues, ModelFiles, ScaleValues
from packager.core.references import ModelReference
from packager.core.request import BuildRequest
from packager.core.samples import Samples
from packager.core.techniques import DraftRequest
from packager.core.version import __version__
from packager.core.workload import WORKLOADS, Workload, parse_workload
from packager.optimize.drafts.request import parse_draft, spelled_kind


def resolve(
    request: BuildRequest,
    reference: ModelReference,
    *,
    parse_model_reference: Callable[[str], ModelReference],
    find_model: Callable[[ModelReference], ModelFiles],
    find_instance: Callable[[str], Instance],
    find_container: Callable[[BuildRequest, Instance], ContainerFacts],
    find_draft: Callable[[ModelReference], ModelFiles],
    find_samples: Callable[[BuildRequest], Samples | None] = lambda _: None,
    find_evaluation: Callable[[BuildRequest, Samples | None], Samples | None] = lambda *_: None,
    containers: tuple[ContainerFacts, ...] = (),
    read_scales: Callable[[ModelFiles], ScaleValues | None] = lambda _: None,
    read_head_values: Callable[[ModelFiles, ModelFiles], HeadValues | None] = lambda *_: None,
    read_workload: Callable[[str], Workload] | None = None,
    writes_tree: bool = False,
) -> Facts:
    """Pin the model, the instance and the container. The base image is resolved after the plan.

    Cheap and local look-ups go first, so that a typing error costs no download.
    What `--draft auto` means is left open: that is found by planning.
    """
    instance = with_ranks(find_instance(request.instance), request.tp_degree)
    # Names such as `g5.xlarge` and `8xh100` are recorded resolved: the record is part of the image.
    request = request.model_copy(update={"instance": instance.name})
    container = find_container(request, instance)
    workload = find_workload(request.workload, read_workload)
    samples = find_samples(request)
    evaluation = find_evaluation(request, samples)
    model = find_model(reference)
    asked = parse_asked_draft(request.draft, parse_model_reference)
    draft = find_asked_draft(asked, find_draft)
    return Facts(
        request=request,
        model=model,
        instance=instance,
        container=container,
        base=None,
        packager_version=__version__,
        draft=draft,
        head_values=read_head_values(draft, model) if draft else None,
        draft_asked=asked,
        samples=samples,
        evaluation=evaluation,
        containers=containers,
        scales=read_scales(model),
        workload=workload,
        writes_tree=writes_tree,
    )


def find_workload(asked: str | None, read: Callable[[str], Workload] | None) -> Workload:
    """Return the workload of a name or of counts, or read it from a file of requests."""
    found = parse_workload(asked)
    if found is not None:
        return found
    if read is None or asked is None:
        raise UsageError(f"{asked!r} is not a workload", hint=f"choose from {', '.join(WORKLOADS)}")
    return read(asked)


def parse_asked_draft(
    written: str | None, parse_model_reference: Callable[[str], ModelReference]
) -> DraftRequest | Finding | None:
    """Parse a draft and the reference of its files; raise where that is none."""
    asked = parse_draft(written)
    if not isinstance(asked, DraftRequest) or asked.reference is None:
        return asked
    try:
        return replace(asked, model=parse_model_reference(asked.reference))
    except UsageError as error:
        meant = spelled_kind(asked.reference)
        if not meant:
            raise
        raise UsageError(
            error.message, hint=f"did you mean `--draft {meant}`? else {error.hint}"
        ) from None


def find_asked_draft(
    asked: DraftRequest | Finding | None,
    find_draft: Callable[[ModelReference], ModelFiles],
) -> ModelFiles | None:
    """Return the draft's files, if any; the planner refuses files that are not a draft."""
    if not isinstance(asked, DraftRequest) or asked.model is None:
        return None
    return find_draft(asked.model)

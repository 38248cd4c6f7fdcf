"""Resolution of names into pinned facts: the last look-up of a build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from packager.core.errors import UsageError
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.instance import with_ranks
from packager.core.model import ModelFiles
from packager.core.quality import EVALUATION_SAMPLES
from packager.core.references import ModelReference
from packager.core.request import BuildRequest
from packager.core.samples import CALIBRATION_SAMPLES, DEFAULT, Samples
from packager.core.techniques import DraftRequest
from packager.core.version import __version__
from packager.core.workload import PASSAGES, QUESTIONS, WORKLOADS, Workload, parse_workload
from packager.models.architectures.pooling import read_pooling
from packager.models.architectures.profile import architecture_of
from packager.optimize.drafts.request import parse_draft, spelled_kind
from packager.optimize.quantize.method import NONE
from packager.pipeline.adapters import find_adapters, merged_name, with_merged
from packager.pipeline.converted import with_converted
from packager.pipeline.planning.pictures import with_pictures
from packager.pipeline.services import BuildServices


def resolve(
    request: BuildRequest,
    find_model: Callable[[], ModelFiles],
    services: BuildServices,
    *,
    by_headers: bool = False,
) -> Facts:
    """Pin the model, the instance and the container. The base image is resolved after the plan.

    Cheap and local look-ups go first, so that a typing error costs no download. `by_headers`: the
    model is not downloaded yet, only its headers are found. What `--draft auto` means is left
    open: that is found by planning.
    """
    instance = with_ranks(services.find_instance(request.instance), request.tp_degree)
    container = services.find_container(
        request.family, request.container_version, request.region, instance
    )
    workload = find_workload(request.workload, services.read_workload)
    samples = find_samples(request, services)
    evaluation = _find_evaluation(request, samples, services)
    adapters = find_adapters(request, services)
    model = with_converted(find_model(), request, services)
    model = with_merged(model, adapters.merged, services)
    workload = with_pictures(workload, model, request.images)
    named = request.model_copy(update={"instance": instance.name, **adapters.fields})
    if adapters.merged is not None and request.served_name is None:
        named = named.model_copy(update={"served_name": merged_name(model, adapters.merged)})
    draft_request = parse_draft_request(request.draft, services.parse_model_reference)
    draft = find_requested_draft(draft_request, draft_finder(services))
    return Facts(
        # Names such as `g5.xlarge` and `8xh100` are recorded resolved: the record is part of the
        # image.
        request=named,
        model=model,
        instance=instance,
        container=container,
        base=None,
        packager_version=__version__,
        draft=draft,
        head_values=services.read_head_values(draft, model) if draft else None,
        draft_request=draft_request,
        samples=samples,
        evaluation=evaluation,
        containers=services.containers(),
        scales=None if by_headers else services.read_scales(model),
        workload=workload_for(model, workload),
        writes_tree=services.outputs != "images",
        adapters=adapters.found,
        merged=adapters.merged,
    )


def workload_for(model: ModelFiles, workload: Workload) -> Workload:
    """Return the workload in texts where the model gives vectors or scores, and no answers."""
    is_pooling = read_pooling(architecture_of(model.config), model) is not None
    if not is_pooling or workload.texts:
        return workload
    tokens = PASSAGES.input_tokens if workload == QUESTIONS else workload.input_tokens
    return replace(PASSAGES, input_tokens=tokens, concurrency=workload.concurrency)


def find_samples(request: BuildRequest, services: BuildServices) -> Samples | None:
    """Read and select the texts for a quantizer; None where no weights are quantized."""
    if request.quantizing in (None, NONE):
        return None
    count = request.calibration_samples or CALIBRATION_SAMPLES
    seed = request.calibration_seed or 0
    return services.find_samples(request.calibration or DEFAULT, count, seed)


def _find_evaluation(
    request: BuildRequest, calibration: Samples | None, services: BuildServices
) -> Samples | None:
    """Read and choose what quality is measured with, other texts than it was calibrated on."""
    source = request.evaluation
    if source is None:
        return None
    count, seed = request.evaluate_samples or EVALUATION_SAMPLES, request.evaluate_seed or 0
    return services.find_evaluation(source, count, seed, calibration)


def draft_finder(services: BuildServices) -> Callable[[ModelReference], ModelFiles]:
    """Return what finds a draft, by its headers where it would be downloaded."""
    return lambda reference: services.peek_draft(reference) or services.find_draft(reference)


def find_workload(named: str | None, read: Callable[[str], Workload] | None) -> Workload:
    """Return the workload of a name or of counts, or read it from a file of requests."""
    found = parse_workload(named)
    if found is not None:
        return found
    if read is None or named is None:
        raise UsageError(f"{named!r} is not a workload", hint=f"choose from {', '.join(WORKLOADS)}")
    return read(named)


def parse_draft_request(
    written: str | None, parse_model_reference: Callable[[str], ModelReference]
) -> DraftRequest | Finding | None:
    """Parse a draft and the reference of its files; raise where that is none."""
    draft = parse_draft(written)
    if not isinstance(draft, DraftRequest) or draft.reference is None:
        return draft
    try:
        return replace(draft, model=parse_model_reference(draft.reference))
    except UsageError as error:
        meant = spelled_kind(draft.reference)
        if not meant:
            raise
        raise UsageError(
            error.message, hint=f"did you mean `--draft {meant}`? else {error.hint}"
        ) from None


def find_requested_draft(
    draft: DraftRequest | Finding | None,
    find_draft: Callable[[ModelReference], ModelFiles],
) -> ModelFiles | None:
    """Return the draft's files, if any; the planner refuses files that are not a draft."""
    if not isinstance(draft, DraftRequest) or draft.model is None:
        return None
    return find_draft(draft.model)

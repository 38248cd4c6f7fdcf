"""Services of the whole line, from names to an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from packager.catalog.compatibility import rules
from packager.catalog.models import quantized_checkpoints
from packager.cli.plugins.contexts import BaseContext, SourceContext
from packager.cli.plugins.tables import BASES, FAMILIES, SOURCES
from packager.cli.wiring.attached import check_sbom, read_small, with_documents
from packager.cli.wiring.bases import read_base
from packager.cli.wiring.caches import OpenCache, past_runs, remember_lookups
from packager.cli.wiring.outputs import (
    check_base_for,
    check_compression,
    kinds_of,
    preflight_all,
    record_places,
    sink_context,
    sinks_for,
    warn_of_layer_format,
    write_out,
)
from packager.cli.wiring.registries import Clients, RegistryBlobs, registry_clients
from packager.cli.wiring.rows import CatalogRows
from packager.cli.wiring.settings import Settings, created_time, digests_file, once, state_dir
from packager.cli.wiring.steps import check_cache_of, choose_executor, run_steps
from packager.cli.wiring.streamed import with_streamed_layers
from packager.cli.wiring.techniques import (
    environments_for,
    find_compilers,
    find_quantizer,
    find_sharder,
)
from packager.cli.wiring.texts import calibration_texts, evaluation_texts, read_workload
from packager.core.errors import ModelRefused, NotReproduced, PackagerError, UsageError
from packager.core.events import StepEvent, ignore, working
from packager.core.files.atomic import check_place
from packager.core.image import BaseImage, Blob, FileRange, Platform
from packager.core.model import (
    HeadValues,
    ModelFile,
    ModelFiles,
    ScaleValues,
    WeightsHeader,
)
from packager.core.ports import ImageSink
from packager.core.references import ModelReference
from packager.core.remote.hub import HubReader
from packager.core.remote.s3 import S3Reader
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.target import parse_target
from packager.models.adapters.directory import list_adapters
from packager.models.architectures.profile import SameModel
from packager.models.checkpoints.gate import quantized_scales
from packager.models.head_values import read_head_values
from packager.models.reference import parse_model_reference as parse_reference
from packager.models.safetensors import read_weights_header
from packager.models.scales import read_scale_values
from packager.optimize.drafts.train.head_files import report_beside
from packager.optimize.evaluate.quality import read_quality
from packager.pipeline.services import BuildServices

if TYPE_CHECKING:
    from packager.core.record import BuildRecord


Found = TypeVar("Found")
_SMALL_BYTES = 16_000_000


def services_for(settings: Settings) -> BuildServices:
    """Return the services of one run; raises for unusable outputs, before any work."""
    settings = replace(settings, on_warning=once(settings.on_warning))
    repeat = settings.repeat
    if settings.record_file is not None:
        check_place(settings.record_file)
    check_compression(settings)
    warn_of_layer_format(settings)
    check_sbom(settings)
    clients = registry_clients(settings)
    rows = CatalogRows(settings)
    reader = BlobReader((RegistryBlobs(clients), HubReader(), S3Reader()))
    cards = BlobReader((HubReader(), S3Reader()))  # documents: not counted as bytes read
    index = DigestIndex(digests_file(settings))  # for one run: each file is looked up once
    sinks = sinks_for(settings.outputs, sink_context(settings, reader, clients))
    environments = environments_for(settings)
    executor = choose_executor(settings, environments, reader)
    artifacts = OpenCache(settings)
    remember = remember_lookups(settings)

    @cache  # ranking plans one model many times
    def _read_scales(same: SameModel) -> ScaleValues | None:
        return read_scales(same.model, settings, reader)

    read_values = cache(partial(_read_values, settings, reader))

    services = BuildServices(
        parse_model_reference=parse_model_reference,
        # Ranking plans one model many times.
        find_model=cache(partial(_find_signed, settings, reader, is_model=True)),
        find_instance=rows.find_instance,
        find_container=rows.find_container,
        find_base=partial(_find_base, repeat, clients, settings),
        check_base=partial(check_base_for, sinks),
        read_base=partial(read_base, settings, reader),
        family=lambda name: FAMILIES.find(name).make(),
        executor=executor,
        run_steps=lambda: run_steps(settings, executor, artifacts, remember, rows.market),
        check_cache=lambda step: check_cache_of(step, executor, artifacts(), settings, remember),
        distrust_cache=artifacts.distrust,
        find_quantizer=cache(lambda asked: find_quantizer(asked, settings.on_warning)),
        find_compilers=cache(lambda asked: find_compilers(asked, settings.on_warning)),
        on_miss=settings.on_miss,
        on_event=settings.on_event,
        find_samples=calibration_texts,
        find_evaluation=evaluation_texts,
        read_quality=read_quality,
        pin_files=lambda model: _pin_files(model, settings, reader, index),
        known_files=lambda one: _known_files(one, index, reader, for_plan=settings.headers_only),
        preflight=lambda: preflight_all(sinks),
        outputs=kinds_of(settings.outputs),
        write=lambda image: write_out(image, sinks, reader, settings),
        save=lambda record: _save(record, sinks, settings),
        created=repeat.created if repeat else created_time(settings.environment),
        find_draft=once_each(partial(_find_signed, settings, reader, is_draft=True)),
        known_draft=rows.known_draft,
        instances=rows.instances(),
        smaller_checkpoints=quantized_checkpoints,
        this_machine=lambda: rows.this_machine,
        past=cache(lambda: past_runs(settings)),
        containers=rows.containers,
        read_scales=lambda model: _read_scales(SameModel(model)),
        read_head_values=lambda head, model: read_values(SameModel(head), SameModel(model)),
        accelerator_of=rows.accelerator_of,
        read_header=lambda file: _read_header(file, reader),
        read_small=lambda file: read_small(file, cards),
    )
    services = with_streamed_layers(services, artifacts, sinks, clients, verify=settings.verify)
    services = with_documents(services, settings, sinks, reader)
    return _with_headers(services, settings, reader)


def _with_headers(services: BuildServices, settings: Settings, reader: BlobReader) -> BuildServices:
    """Return the services with those that read headers, adapters, and what is beside models."""
    return replace(
        services,
        peek_model=lambda reference: _peek_model(reference, settings),
        peek_draft=once_each(lambda reference: _peek_model(reference, settings, is_draft=True)),
        find_adapter=once_each(partial(_find_signed, settings, reader, is_adapter=True)),
        peek_adapter=once_each(lambda reference: _peek_adapter(reference, settings)),
        list_adapters=list_adapters,
        find_sharder=find_sharder,
        rules=rules(),
        read_workload=cache(read_workload),
        read_training=report_beside,
    )


def _find_signed(
    settings: Settings,
    reader: BlobReader,
    reference: ModelReference,
    *,
    is_model: bool = False,
    is_draft: bool = False,
    is_adapter: bool = False,
) -> ModelFiles:
    """Find a model, draft or adapter that keys must have signed where they are asked for."""
    step = "adapter" if is_adapter else ""

    def find(asked: ModelReference) -> ModelFiles:
        return find_model(asked, settings, is_draft=is_draft, is_adapter=is_adapter, step=step)

    if not (settings.policy.is_enforced or settings.model_keys or settings.deny_licences):
        return find(reference)
    from packager.cli.wiring.model_keys import find_signed

    return find_signed(reference, settings, reader, find, is_model=is_model)


def read_scales(model: ModelFiles, settings: Settings, reader: BlobReader) -> ScaleValues | None:
    """Read the scales of packed weights; of files that are elsewhere not for a plan."""
    scales = quantized_scales(model)
    is_here = all(
        isinstance(one.content, FileRange) for one in model.files if one.role == "weights"
    )
    if not scales or (settings.headers_only and not is_here):
        return None
    return read_scale_values(
        model, scales, read_header=lambda file: _read_header(file, reader), read=reader.read
    )


def _read_values(
    settings: Settings, reader: BlobReader, head: SameModel, model: SameModel
) -> HeadValues | None:
    """Read a head's vocabulary; None for a plan where the files are elsewhere, out of reach."""
    try:
        return read_head_values(
            head.model,
            model.model,
            read_header=lambda file: _read_header(file, reader),
            read=reader.read,
        )
    except PackagerError:
        if not settings.headers_only:
            raise
        return None  # headers may be known from before, and enough for a plan


def _read_header(file: ModelFile, reader: BlobReader) -> WeightsHeader:
    try:
        return read_weights_header(file, reader.read)
    except ModelRefused:
        if isinstance(file.content, FileRange) and file.content.sha256:
            for _ in reader.chunks(Blob((file.content,))):
                pass  # raises where it differs from the published digest
        raise


def _save(record: BuildRecord, sinks: Sequence[ImageSink], settings: Settings) -> None:
    from packager.pipeline.records import save_record  # plans have none

    for failure in save_record(
        record,
        state_dir=state_dir(settings.environment),
        copy_to=settings.record_file,
        beside=record_places(sinks),
    ):
        settings.on_warning(f"the image is there, a copy of its record is not: {failure.message}")


def find_model(
    reference: ModelReference,
    settings: Settings,
    *,
    is_draft: bool = False,
    is_adapter: bool = False,
    step: str = "",
) -> ModelFiles:
    """Find a model's files where its reference says; raise what its source does."""
    step = step or ("draft" if is_draft else "model")

    def on_bytes(done: int, size: int, kept: int = 0) -> None:
        settings.on_event(
            StepEvent(
                step=step,
                detail=reference.text,
                state="running",
                done=done,
                size=size,
                kept=kept,
            )
        )

    context = SourceContext(
        headers_only=settings.headers_only,
        is_draft=is_draft,
        is_adapter=is_adapter,
        trust_roots=settings.trust_roots,
        on_bytes=None if settings.on_event is ignore else on_bytes,
    )
    source = SOURCES.find(reference.source).make(context)
    with working(settings.on_event, step, reference.text):
        return source.facts(reference)


def parse_model_reference(text: str) -> ModelReference:
    """Parse a model reference; `NAME://…` selects the source that a plug-in registers."""
    return parse_reference(text, SOURCES.is_outside)


def once_each(find: Callable[[ModelReference], Found]) -> Callable[[ModelReference], Found]:
    """Return a look-up that runs once per reference, also where it fails."""

    @cache
    def attempt(reference: ModelReference) -> Found | PackagerError:
        try:
            return find(reference)
        except PackagerError as error:
            return error

    def found(reference: ModelReference) -> Found:
        result = attempt(reference)
        if isinstance(result, PackagerError):
            raise result
        return result

    return found


def _peek_model(
    reference: ModelReference, settings: Settings, *, is_draft: bool = False
) -> ModelFiles | None:
    """Read the headers of a model that building would download; None of any other."""
    if settings.headers_only or reference.source != "hub":
        return None
    peeking = replace(settings, headers_only=True)
    return find_model(reference, peeking, is_draft=is_draft, step="headers")


def find_adapter(reference: ModelReference, settings: Settings) -> ModelFiles:
    """Find an adapter's files where its reference says; raise what its source does."""
    return find_model(reference, settings, is_adapter=True, step="adapter")


def _peek_adapter(reference: ModelReference, settings: Settings) -> ModelFiles | None:
    """Read the headers of an adapter that building would download; None of any other."""
    if settings.headers_only or reference.source != "hub":
        return None
    return find_adapter(reference, replace(settings, headers_only=True))


def _find_base(
    repeat: BuildRecord | None,
    clients: Clients,
    settings: Settings,
    reference: str,
    platform: Platform,
) -> BaseImage:
    target = parse_target(reference, BASES)
    source = BASES.of_target(target).make(BaseContext(clients=clients))
    with working(settings.on_event, "base", reference):
        base = source.facts(target, platform)
    if base.platform != platform:
        raise UsageError(
            f"base image {reference!r} is for {base.platform}, the image is for {platform}",
            hint=f"name a base that has {platform}",
        )
    if repeat and base.digest != repeat.base.digest:
        raise NotReproduced(
            f"base image {reference!r} is now {base.digest or 'empty'}, "
            f"the record was made with {repeat.base.digest or 'an empty base'}",
            hint="restore the recorded base, or build without --from-record",
        )
    if settings.policy.is_enforced:
        from packager.cli.wiring.policies import check_base

        check_base(target, platform, base.digest, settings)
    return base


def _known_files(
    model: ModelFiles, index: DigestIndex, reader: BlobReader, *, for_plan: bool
) -> ModelFiles:
    """Return files with the digests that are known; small files are read, few for a plan."""
    from packager.models.pinning import pin_files

    known = pin_files(model, index, None)
    small = [
        file
        for file in known.files
        if file.role == "config" or (file.role != "weights" and not for_plan)
        if file.size <= _SMALL_BYTES
    ]
    try:
        read = pin_files(replace(known, files=tuple(small)), index, reader).files
    except PackagerError:
        return known  # whoever needs them says so
    pinned = {file.path: file for file in read}
    return replace(known, files=tuple(pinned.get(file.path, file) for file in known.files))


def _pin_files(
    model: ModelFiles, settings: Settings, reader: BlobReader, index: DigestIndex
) -> ModelFiles:
    """Return files with their digests. A plan, or a dry run, takes those that are known.

    A dry run that has to say whether everything is in the cache reads the others.
    """
    from packager.models.pinning import pin_files

    unread = settings.headers_only and not settings.read_local
    return pin_files(model, index, None if unread else reader, settings.on_event)

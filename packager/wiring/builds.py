"""Doers of the whole line, from names to an image."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from packager import plugins
from packager.adapters.blobs import BlobReader
from packager.adapters.digest_index import DigestIndex
from packager.adapters.quality import read_quality
from packager.adapters.records import check_place, save_record
from packager.adapters.remote.hub import HubReader
from packager.adapters.remote.s3 import S3Reader
from packager.adapters.safetensors import read_weights_header
from packager.adapters.scales import read_scale_values
from packager.build.services import BuildServices
from packager.catalog.accelerators import accelerator_of
from packager.catalog.compatibility import rules
from packager.catalog.containers import containers, find_container
from packager.catalog.instances import find_instance, instances
from packager.catalog.models import drafts_of, quantized_checkpoints
from packager.catalog.prices import at_price, priced
from packager.core.catalog import Accelerator
from packager.core.events import StepEvent, ignore
from packager.core.image import BaseImage, Blob, FileRange, Platform
from packager.core.instance import LOCAL, Instance
from packager.core.model import ModelFile, ModelFiles, ScaleValues, WeightsHeader
from packager.core.own import OwnRows
from packager.core.record import BuildRecord
from packager.errors import ModelRefused, NotReproduced, UsageError
from packager.planning.drafts.known import choose_known
from packager.planning.drafts.request import spelled_kind
from packager.planning.gate import quantized_scales
from packager.planning.job import Market
from packager.planning.profile import SameModel
from packager.ports import ContainerFamily
from packager.wiring.caches import OpenCache, past_runs, remember_lookups
from packager.wiring.outputs import (
    check_compression,
    claim_keys_for,
    reach_all,
    sinks_for,
    write_out,
)
from packager.wiring.registries import Clients, RegistryBlobs, registry_clients
from packager.wiring.settings import (
    Settings,
    created_time,
    digests_file,
    once,
    state_dir,
    user_rows,
    working,
)
from packager.wiring.steps import choose_executor, foresee_step, run_steps
from packager.wiring.techniques import environments_for, find_compilers, find_quantizer
from packager.wiring.texts import find_evaluation, find_samples, read_workload


def services_for(settings: Settings) -> BuildServices:
    """Choose the doers of one run. Outputs that cannot be are refused here, before any work."""
    settings = replace(settings, on_warning=once(settings.on_warning))
    repeat = settings.repeat
    if settings.record_file is not None:
        check_place(settings.record_file)
    check_compression(settings)
    clients = registry_clients(settings)
    own = cache(lambda: user_rows(settings))
    reader = BlobReader((RegistryBlobs(clients), HubReader(), S3Reader()))
    index = DigestIndex(digests_file(settings))  # of one run: it asks for each file once
    sinks = sinks_for(
        settings.outputs,
        reader,
        clients,
        digests_file(settings),
        sparse_base=settings.sparse_base,
        keys=claim_keys_for(settings),
        on_warning=settings.on_warning,
        on_event=settings.on_event,
    )
    environments = environments_for(settings)
    executor = choose_executor(settings, environments, reader)
    artifacts = OpenCache(settings)
    remember = remember_lookups(settings)
    here = cache(lambda: _find_instance(LOCAL, own()))

    def describe(instance: Instance) -> Accelerator:
        return accelerator_of(instance, own().accelerators)

    def market() -> Market:
        return Market(here=here(), accelerator_of=describe)

    @cache  # ranking plans one model many times
    def _read_scales(same: SameModel) -> ScaleValues | None:
        return read_scales(same.model, settings, reader)

    return BuildServices(
        # Ranking plans one model many times.
        find_model=cache(lambda reference: find_model(reference, settings)),
        find_instance=lambda name: at_price(
            priced(_find_instance(name, own()), settings.region, own().prices),
            settings.usd_per_hour,
        ),
        find_container=lambda request, instance: find_container(
            request.family,
            instance.kind,
            request.container_version,
            request.region,
            instance.name,
            own().containers,
        ),
        find_base=lambda reference, platform: _find_base(
            reference, platform, repeat, clients, settings
        ),
        family=_family,
        executor=executor,
        run_steps=lambda: run_steps(settings, executor, artifacts, remember, market),
        foresee=lambda step: foresee_step(step, executor, artifacts(), settings, remember),
        distrust_cache=artifacts.distrust,
        find_quantizer=cache(find_quantizer),
        find_compilers=cache(find_compilers),
        on_miss=settings.on_miss,
        find_samples=find_samples,
        find_evaluation=find_evaluation,
        read_quality=read_quality,
        pin_files=lambda model: _pin_files(model, settings, reader, index),
        reach=lambda: reach_all(sinks),
        write=lambda image: write_out(image, sinks, reader, settings),
        save=lambda record: _save(record, settings),
        created=repeat.created if repeat else created_time(settings.environment),
        find_draft=cache(lambda reference: find_model(reference, settings, is_draft=True)),
        known_draft=lambda model, instance, container: choose_known(
            drafts_of(model.ref.name, own().models), model, instance, container, rules()
        ),
        instances=tuple(
            priced(known, settings.region, own().prices) for known in instances(own().instances)
        ),
        smaller_checkpoints=quantized_checkpoints,
        rules=rules(),
        this_machine=here,
        past=cache(lambda: past_runs(settings)),
        containers=lambda: containers(own().containers),
        read_scales=lambda model: _read_scales(SameModel(model)),
        peek_model=lambda reference: _peek_model(reference, settings),
        accelerator_of=describe,
        read_header=lambda file: _read_header(file, reader),
        read_workload=cache(read_workload),
    )


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


def _read_header(file: ModelFile, reader: BlobReader) -> WeightsHeader:
    try:
        return read_weights_header(file, reader.read)
    except ModelRefused:
        if isinstance(file.content, FileRange) and file.content.sha256:
            for _ in reader.chunks(Blob((file.content,))):
                pass  # raises where it is not what was published
        raise


def _save(record: BuildRecord, settings: Settings) -> None:
    for failure in save_record(
        record, state_dir=state_dir(settings.environment), copy_to=settings.record_file
    ):
        settings.on_warning(f"the image is there, a copy of its record is not: {failure.message}")


def find_model(reference: str, settings: Settings, *, is_draft: bool = False) -> ModelFiles:
    """Find a model's files where its reference says; raise what its source does."""
    scheme, step = _scheme_of(reference, is_draft=is_draft), "draft" if is_draft else "model"
    told: dict[str, Any] = {}
    if scheme == "hub" and settings.on_event is not ignore:
        told["on_bytes"] = lambda done, size: settings.on_event(
            StepEvent(step=step, detail=reference, state="running", done=done, size=size)
        )
    source = plugins.load(plugins.SOURCES, scheme)(
        headers_only=settings.headers_only, is_draft=is_draft, **told
    )
    with working(step, reference, settings):
        found: ModelFiles = source.facts(reference)
    return found


def _scheme_of(reference: str, *, is_draft: bool) -> str:
    from packager.adapters.sources.choose import choose_source

    try:
        return choose_source(reference)
    except UsageError as error:
        meant = spelled_kind(reference) if is_draft else ""
        if not meant:
            raise
        raise UsageError(
            error.message, hint=f"did you mean `--draft {meant}`? else {error.hint}"
        ) from None


def _peek_model(reference: str, settings: Settings) -> ModelFiles | None:
    """Read the headers of a model that building would download; None of any other."""
    from packager.adapters.sources.choose import choose_source

    if settings.headers_only or choose_source(reference) != "hub":
        return None
    return find_model(reference, replace(settings, headers_only=True))


def _find_instance(name: str, own: OwnRows) -> Instance:
    if name == LOCAL:
        from packager.adapters.machine import describe_machine

        return describe_machine()
    return find_instance(name, own.instances)


def _find_base(
    reference: str,
    platform: Platform,
    repeat: BuildRecord | None,
    clients: Clients,
    settings: Settings,
) -> BaseImage:
    scheme = plugins.scheme_of(reference, plugins.BASES)
    source_type = plugins.load(plugins.BASES, scheme)
    source = source_type(clients=clients()) if scheme == "registry" else source_type()
    with working("base", reference, settings):
        base: BaseImage = source.facts(reference, platform)
    if base.platform != platform:
        raise UsageError(
            f"base image {reference!r} is for {base.platform}, the image is for {platform}",
            hint=f"name a base that has {platform}",
        )
    if repeat and base.digest != repeat.base.digest:
        raise NotReproduced(
            f"base image {reference!r} is now {base.digest or 'empty'}, "
            f"the record was made with {repeat.base.digest or 'an empty base'}",
            hint="bring the recorded base back, or build anew without --from-record",
        )
    return base


def _family(name: str) -> ContainerFamily:
    family: ContainerFamily = plugins.load(plugins.FAMILIES, name)()
    return family


def _pin_files(
    model: ModelFiles, settings: Settings, reader: BlobReader, index: DigestIndex
) -> ModelFiles:
    """Return files with their digests. A plan, or a dry run, takes those that are known.

    A dry run reads the weights where it has to say whether everything is in the cache.
    """
    from packager.adapters.pinning import pin_files

    unread = settings.headers_only and not settings.read_local
    unread = unread or (settings.dry_run and settings.on_miss == "run")
    return pin_files(model, index, None if unread else reader, settings.on_event)

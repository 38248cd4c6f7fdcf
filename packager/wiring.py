"""The only place where doers are chosen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packager import __version__, plugins
from packager.adapters.blobs import BlobReader
from packager.adapters.cache_settings import (
    AS_SET_UP,
    CacheOptions,
    CacheSettings,
    cache_settings,
    signing_key_file,
    trusted_keys_file,
)
from packager.adapters.digest_index import DigestIndex
from packager.adapters.files import user_dir
from packager.adapters.images import OpenImage, open_image
from packager.adapters.packing import NotForEngines, codec
from packager.adapters.quality import read_quality
from packager.adapters.records import check_place, save_record
from packager.adapters.remote.hub import HubReader
from packager.adapters.remote.s3 import S3Reader
from packager.adapters.safetensors import read_weights_header
from packager.adapters.seen_blobs import SeenBlobs
from packager.adapters.sinks.layout import split_layout_reference
from packager.adapters.sinks.tee import write_image
from packager.catalog.accelerators import accelerator_of
from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance, instances
from packager.catalog.models import drafts_of
from packager.catalog.prices import priced
from packager.catalog.registries import traits_of
from packager.core.events import EventSink, StepEvent, ignore
from packager.core.image import (
    BaseImage,
    Compression,
    ImageSpec,
    Platform,
    RemoteRange,
    RuntimeConfig,
    SealedImage,
    Written,
)
from packager.core.instance import LOCAL, Instance
from packager.core.model import ModelFiles
from packager.core.own import OwnRows
from packager.core.quality import EVALUATION_SAMPLES
from packager.core.recipe import Step, StepForecast
from packager.core.record import BuildRecord, Transfer
from packager.core.request import BuildRequest
from packager.core.samples import (
    CALIBRATION_SAMPLES,
    DEFAULT,
    Samples,
    choose_others,
    choose_samples,
)
from packager.core.training import TrainingTexts, split_texts
from packager.errors import NotReproduced, UsageError
from packager.pipeline import OnMiss, RunStep, Tools
from packager.planning.drafts.known import choose_known
from packager.planning.schemes import NONE, parse_quantize
from packager.ports import (
    Compiler,
    ContainerFamily,
    Executor,
    ImageSink,
    Quantizer,
    Reachable,
)
from packager.share import share_dir

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache
    from artifact_cache.entry import Entry
    from artifact_cache.store import CacheStore
    from artifact_cache.stores.archive import Imported
    from artifact_cache.trust import Signer, Trust
    from packager.adapters.executors.runner import Remember
    from packager.adapters.fleet.presence import Presence
    from packager.adapters.lookups import LastLookups
    from packager.adapters.registry.client import RegistryClients
    from packager.adapters.tools.environments import Environments
    from packager.core.warmup import Fleet
    from packager.jobs.train_draft import HeadTools

Clients = Callable[[], "RegistryClients"]

EPOCH = "1970-01-01T00:00:00Z"


def _ignore_warning(text: str) -> None:
    """Receive a warning and do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Choices about doers that are no part of the request."""

    outputs: tuple[str, ...] = ()
    insecure_registries: tuple[str, ...] = ()
    ca_file: Path | None = None  # authorities to trust beside the system's
    record_file: Path | None = None
    catalog_file: Path | None = None  # rows of the user's own
    region: str | None = None  # whose prices a plan shows
    headers_only: bool = False  # read no weights: enough for a plan
    read_local: bool = False  # but those on this machine, once: keys need their digests
    dry_run: bool = False
    cache_dir: Path | None = None  # of artifacts; None: the user's cache directory
    use_cache: bool = True
    cache: CacheOptions = AS_SET_UP
    executor: str = "local"
    check_capacity: bool = True  # refuse steps that need more than this machine has
    restart: bool = False  # of steps that an earlier run did not finish
    on_miss: OnMiss = "run"  # what happens to steps whose result is not in the cache
    sparse_base: bool = False  # layouts without the base's layers
    compression: Compression = "none"  # of the request: what that needs is looked for early
    verify: bool = False  # read every layer, whatever is known of it
    repeat: BuildRecord | None = None  # the record this build must reproduce
    on_event: EventSink = ignore
    on_warning: Callable[[str], None] = _ignore_warning
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def tools_for(settings: Settings) -> Tools:
    """Choose the doers of one run. Outputs that cannot be are refused here, before any work."""
    settings = replace(settings, on_warning=_once(settings.on_warning))
    repeat = settings.repeat
    if settings.record_file is not None:
        check_place(settings.record_file)
    _check_compression(settings)
    clients = _registry_clients(settings)
    own = cache(lambda: _own_rows(settings))
    reader = BlobReader((_RegistryBlobs(clients), HubReader(), S3Reader()))
    sinks = sinks_for(
        settings.outputs,
        reader,
        clients,
        _state_file(settings),
        sparse_base=settings.sparse_base,
        on_warning=settings.on_warning,
        on_event=settings.on_event,
    )
    environments = environments_for(settings)
    executor = _executor(settings, environments, reader)
    artifacts = cache(lambda: artifact_cache_for(settings))
    remember = _remember_lookups(settings)
    return Tools(
        # Ranking plans one model many times.
        find_model=cache(lambda reference: _find_model(reference, settings)),
        find_instance=lambda name: priced(
            _find_instance(name, own()), settings.region, own().prices
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
        run_steps=lambda: _run_steps(settings, executor, artifacts, remember),
        foresee=lambda step: _foresee(step, executor, artifacts(), settings, remember),
        find_quantizer=cache(find_quantizer),
        find_compilers=cache(find_compilers),
        on_miss=settings.on_miss,
        find_samples=find_samples,
        find_evaluation=find_evaluation,
        read_quality=read_quality,
        pin_files=lambda model: _pin_files(model, settings, reader),
        reach=lambda: _reach(sinks),
        write=lambda image: _write(image, sinks, reader, settings),
        save=lambda record: _save(record, settings),
        created=repeat.created if repeat else created_time(settings.environment),
        find_draft=cache(lambda reference: _find_model(reference, settings, is_draft=True)),
        known_draft=lambda model, instance, container: choose_known(
            drafts_of(model.ref.name, own().models), model, instance, container, rules()
        ),
        instances=tuple(
            priced(known, settings.region, own().prices) for known in instances(own().instances)
        ),
        rules=rules(),
        accelerator_of=lambda instance: accelerator_of(instance, own().accelerators),
        read_header=lambda file: read_weights_header(file, reader.read),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTools:
    """Doers for images that exist already."""

    open: Callable[[str, Platform], OpenImage]
    write: Callable[[ImageSpec, SealedImage], tuple[Written, Transfer]]
    seen: Callable[[str, Sequence[str]], Mapping[str, tuple[str, ...]]]  # reference, digests


def image_tools_for(settings: Settings) -> ImageTools:
    """Choose the doers that open and copy images; outputs that cannot be are refused here."""
    clients = _registry_clients(settings)
    reader = BlobReader((_RegistryBlobs(clients),))
    sinks = sinks_for(
        settings.outputs,
        reader,
        clients,
        _state_file(settings),
        on_warning=settings.on_warning,
        on_event=settings.on_event,
    )
    return ImageTools(
        open=lambda reference, platform: _open_image(reference, platform, clients, settings),
        write=lambda image, sealed: _write(image, sinks, reader, settings, sealed=sealed),
        seen=lambda reference, digests: _seen_in(reference, digests, _state_file(settings)),
    )


def _seen_in(
    reference: str, digests: Sequence[str], state_file: Path
) -> dict[str, tuple[str, ...]]:
    """Other repositories of the image's registry where these blobs were met."""
    from packager.adapters.registry.reference import parse_reference

    if plugins.scheme_of(reference, plugins.SINKS) != "registry":
        return {}
    image, seen = parse_reference(reference), SeenBlobs(state_file)
    return {
        digest: tuple(
            f"{image.host}/{name}"
            for name in seen.repositories(image.host, digest)
            if name != image.repository
        )
        for digest in digests
    }


def state_dir(environment: Mapping[str, str]) -> Path:
    """Where records and the digest index live."""
    return user_dir("state", environment) / "packager"


def _state_file(settings: Settings) -> Path:
    """What is remembered of files read and of blobs seen in registries."""
    return state_dir(settings.environment) / "digests.sqlite"


def created_time(environment: Mapping[str, str]) -> str:
    """The image's creation time: SOURCE_DATE_EPOCH, else the epoch, never the clock."""
    epoch = environment.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return EPOCH
    try:
        moment = datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {epoch!r}",
            hint="set it to whole seconds since 1970, or unset it",
        ) from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def sinks_for(
    outputs: Sequence[str],
    reader: BlobReader,
    clients: Clients,
    state_file: Path,
    *,
    sparse_base: bool = False,
    on_warning: Callable[[str], None] = _ignore_warning,
    on_event: EventSink = ignore,
) -> list[ImageSink]:
    """Make a sink for each output. Layouts come first and engines last.

    An engine can then be served from the layout's copy instead of the weights,
    and a second layout links to the blobs of the first.
    """
    if len(set(outputs)) != len(outputs):
        raise UsageError("an output is named twice", hint="name each output once")
    if sparse_base and not any(text.startswith("oci:") for text in outputs):
        raise UsageError(
            "--sparse-base is for layouts, and no output is one", hint="add --output oci:DIR"
        )
    layouts = [split_layout_reference(text[4:]) for text in outputs if text.startswith("oci:")]
    if len({root.resolve() for root, _ in layouts}) != len(layouts):
        raise UsageError(
            "two outputs are images in one layout directory",
            hint="name one, and build again for the other: nothing is read again",
        )
    order = {"oci": 0, "registry": 1, "docker": 2}
    sinks: list[ImageSink] = []
    for output in sorted(outputs, key=lambda text: order[plugins.scheme_of(text, plugins.SINKS)]):
        scheme = plugins.scheme_of(output, plugins.SINKS)
        sink_type = plugins.load(plugins.SINKS, scheme)
        if scheme == "registry":
            sinks.append(
                sink_type(
                    output, clients=clients(), seen=SeenBlobs(state_file), on_warning=on_warning
                )
            )
        elif scheme == "docker":
            sinks.append(sink_type(output, reader=reader, on_event=on_event))
        else:
            sinks.append(sink_type(output, sparse_base=sparse_base, beside=tuple(sinks)))
    return sinks


def _check_compression(settings: Settings) -> None:
    """Refuse what the outputs, or this installation, cannot do with compressed layers."""
    if settings.compression == "none":
        return
    if any(plugins.scheme_of(output, plugins.SINKS) == "docker" for output in settings.outputs):
        raise NotForEngines
    codec()


def _reach(sinks: Iterable[ImageSink]) -> None:
    """Ask every output that can be asked: a download of hours must not end at a wrong password."""
    for sink in sinks:
        if isinstance(sink, Reachable):
            sink.reach()


def _write(
    image: ImageSpec,
    sinks: Sequence[ImageSink],
    reader: BlobReader,
    settings: Settings,
    *,
    sealed: SealedImage | None = None,
) -> tuple[Written, Transfer]:
    written = write_image(
        image,
        sinks,
        reader=reader,
        index=DigestIndex(_state_file(settings)),
        on_event=settings.on_event,
        expect_digest=settings.repeat.digest if settings.repeat else "",
        sealed=sealed,
        verify=settings.verify,
    )
    return written, Transfer(
        bytes_read=reader.bytes_read,
        bytes_sent=sum(getattr(sink, "bytes_sent", 0) for sink in sinks),
        layers_known=written.layers_known,
        layers_streamed=written.layers_streamed,
    )


def _save(record: BuildRecord, settings: Settings) -> None:
    for failure in save_record(
        record, state_dir=state_dir(settings.environment), copy_to=settings.record_file
    ):
        settings.on_warning(f"the image is there, a copy of its record is not: {failure.message}")


def _registry_clients(settings: Settings) -> Clients:
    """One set of connections and tokens a run, made when a registry is first needed."""

    @cache
    def clients() -> RegistryClients:
        from packager.adapters.registry.client import RegistryClients

        own = _own_rows(settings).registries
        return RegistryClients(
            insecure_hosts=settings.insecure_registries,
            ca_file=str(settings.ca_file or ""),
            traits_of=lambda host: traits_of(host, own),
        )

    return clients


class _RegistryBlobs:
    """Reads blobs of registries; loads the client when the first one is read."""

    scheme = "registry"

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        """Yield the segment's bytes."""
        from packager.adapters.registry.reader import RegistryReader

        return RegistryReader(clients=self._clients()).read(segment)


def _find_model(reference: str, settings: Settings, *, is_draft: bool = False) -> ModelFiles:
    from packager.adapters.sources.choose import choose_source

    scheme, step = choose_source(reference), "draft" if is_draft else "model"
    told: dict[str, Any] = {}
    if scheme == "hub" and settings.on_event is not ignore:
        told["on_bytes"] = lambda done, size: settings.on_event(
            StepEvent(step=step, detail=reference, state="running", done=done, size=size)
        )
    source = plugins.load(plugins.SOURCES, scheme)(
        headers_only=settings.headers_only, is_draft=is_draft, **told
    )
    with _step(step, reference, settings):
        found: ModelFiles = source.facts(reference)
    return found


def _open_image(
    reference: str, platform: Platform, clients: Clients, settings: Settings
) -> OpenImage:
    with _step("image", reference, settings):
        return open_image(reference, platform, clients)


@contextmanager
def _step(step: str, detail: str, settings: Settings) -> Iterator[None]:
    """Say that work has begun which may take long, and when it is over."""
    settings.on_event(StepEvent(step=step, detail=detail, state="started"))
    yield
    settings.on_event(StepEvent(step=step, detail=detail, state="finished"))


def _own_rows(settings: Settings) -> OwnRows:
    """What the user added to the catalog; nothing is loaded where nothing was added."""
    from packager.adapters.user_catalog import own_rows

    return own_rows(settings.catalog_file, settings.environment)


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
    with _step("base", reference, settings):
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


def cache_dir(settings: Settings) -> Path:
    """Where finished artifacts are kept, and builds work beside them."""
    named = settings.cache_dir or settings_of_cache(settings).directory
    return Path(named).absolute() if named else user_dir("cache", settings.environment) / "packager"


def settings_of_cache(settings: Settings) -> CacheSettings:
    """What options, environment and the user's file say of the cache."""
    return cache_settings(settings.cache, settings.environment)


def artifacts_dir(settings: Settings) -> Path:
    """Where the artifact cache itself is."""
    return cache_dir(settings) / "artifacts"


def artifact_cache_for(settings: Settings) -> ArtifactCache | None:
    """Open the artifact cache with the shared stores behind it; None when none is wanted."""
    if not settings.use_cache:
        return None
    from artifact_cache import Notice, open_cache
    from packager.adapters.cache_errors import explained_cache_errors

    asked = settings_of_cache(settings)

    def notify(notice: Notice) -> None:
        if notice.code == "store":  # of a shared store; a result would not tell
            settings.on_warning(f"cache: {notice.message}")
        else:
            settings.on_event(StepEvent(step="cache", state="running", detail=notice.message))

    with explained_cache_errors():
        return open_cache(
            artifacts_dir(settings),
            asked.shared,
            builder_id=asked.builder_id,
            version=__version__,
            notify=notify,
            trust=trust_for(settings),
            signer=signer_for(settings),
        )


def trust_for(settings: Settings) -> Trust | None:
    """Say whose entries may be used; None when nobody is asked for a signature."""
    from artifact_cache import Trust, load_trusted_keys
    from packager.adapters.cache_errors import explained_cache_errors

    asked = settings_of_cache(settings)
    with explained_cache_errors():
        keys = load_trusted_keys(asked.trusted_keys) if asked.trusted_keys else {}
    return Trust(keys, asked.require_signed) if keys or asked.require_signed else None


def signer_for(settings: Settings) -> Signer | None:
    """Say with which key entries are signed; None when they are not."""
    from artifact_cache import load_signer
    from packager.adapters.cache_errors import explained_cache_errors

    asked = settings_of_cache(settings)
    with explained_cache_errors():
        return load_signer(asked.signing_key) if asked.signing_key else None


def signing_key_place() -> Path:
    """Where the user's own signing key is."""
    return signing_key_file(os.environ)


def trusted_keys_place() -> Path:
    """Where the user's list of trusted keys is."""
    return trusted_keys_file(os.environ)


def last_lookups(settings: Settings) -> tuple[Mapping[str, Any], ...]:
    """What the last build asked the cache."""
    from packager.adapters.lookups import LastLookups

    return LastLookups(state_dir(settings.environment)).last()


def entry_sink(target: str, settings: Settings) -> ImageSink:
    """Choose where an entry of the cache goes as an artifact."""
    clients = _registry_clients(settings)
    [sink] = sinks_for(
        (target,),
        BlobReader(),
        clients,
        _state_file(settings),
        on_warning=settings.on_warning,
        on_event=settings.on_event,
    )
    return sink


def import_entries(
    source: str,
    store: CacheStore,
    scratch: Callable[[], AbstractContextManager[Path]],
    settings: Settings,
) -> Imported:
    """Publish the entries of a registry or a layout; of a layout without a tag, all of them."""
    from artifact_cache.stores.archive import Imported
    from packager.adapters.cache_oci import entries_of_layout, import_entry

    clients = _registry_clients(settings)
    reader = BlobReader((_RegistryBlobs(clients),))
    published: list[Entry] = []
    known: list[Entry] = []
    for reference in entries_of_layout(source):
        with scratch() as place:
            done = import_entry(reference, store, place, clients=clients, reader=reader)
        published += done.published
        known += done.known
    return Imported(published=tuple(published), known=tuple(known))


def presence_for(settings: Settings, artifacts: ArtifactCache) -> Presence:
    """Choose the stores in which results of a fleet have to be."""
    from artifact_cache import Trust, load_trusted_keys
    from packager.adapters.cache_errors import explained_cache_errors
    from packager.adapters.fleet.presence import Presence

    asked = settings_of_cache(settings)
    with explained_cache_errors():
        keys = load_trusted_keys(asked.trusted_keys) if asked.trusted_keys else {}
        return Presence(
            artifacts,
            asked.shared,
            partial=artifacts_dir(settings) / "partial",
            work_dir=cache_dir(settings) / "work",
            trust=Trust(keys, asked.require_signed) if keys or asked.require_signed else None,
        )


def past_builds(settings: Settings) -> tuple[tuple[str, str, float], ...]:
    """Say of entries of this machine's cache their kind, their model and what making them took."""
    from artifact_cache import Index

    place = artifacts_dir(settings)
    if not settings.use_cache or not place.is_dir():
        return ()
    found = Index(place).summaries()
    return tuple((one.kind, one.labels.get("model", ""), one.build_s) for one in found)


def fleet_for(
    name: str,
    plan: Path,
    settings: Settings,
    *,
    steps: str = "local",
    address: str = "",
    at_once: int | None = None,
) -> Fleet:
    """Choose the machines that run a plan; its jobs find caches as this command does."""
    from packager.adapters.fleet.presence import without_lease

    asked = settings_of_cache(settings)
    environment = {
        **settings.environment,
        "PACKAGER_CACHE": str(cache_dir(settings)),
        "PACKAGER_CACHE_SHARED": ",".join(map(without_lease, asked.shared)),
    }
    if asked.require_signed:
        environment["PACKAGER_CACHE_REQUIRE_SIGNED"] = "1"
    for variable, path in (
        ("PACKAGER_CACHE_TRUSTED_KEYS", asked.trusted_keys),
        ("PACKAGER_CACHE_SIGNING_KEY", asked.signing_key),
    ):
        if path is not None:
            environment[variable] = str(path.absolute())
    own: dict[str, Any] = {"address": address}
    if name == "local":
        own = {"log_dir": state_dir(settings.environment) / "logs"}
    fleet: Fleet = plugins.load(plugins.FLEETS, name)(
        plan, environment=environment, at_once=at_once, options=("--steps", steps), **own
    )
    return fleet


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Say each thing once: every step of a build meets the same store that does not answer."""
    said: set[str] = set()

    def say_once(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return say_once


def tool_names() -> tuple[str, ...]:
    """Name every tool: those that packager brings, and those of other packages."""
    ours = (place.parent.name for place in _tools_dir().glob("*/tool.toml"))
    return tuple(sorted({*ours, *plugins.tool_directories()}))


def environments_for(settings: Settings) -> Environments:
    """Choose where tools are installed: for all builds of a user, whatever cache they use."""
    from packager.adapters.tools.environments import Environments

    named = settings.environment.get("PACKAGER_TOOLS")
    return Environments(
        Path(named).absolute()
        if named
        else user_dir("cache", settings.environment) / "packager/tools",
        find_directory=_tool_directory,
        helper=_tools_dir() / "common",
        log_dir=state_dir(settings.environment) / "logs",
        environment=settings.environment,
        on_event=settings.on_event,
    )


def find_quantizer(asked: str | None) -> Quantizer | None:
    """Find who does `METHOD`, or is named by `QUANTIZER:METHOD`; None where nobody is needed.

    For a wrong name it is the first of all: whoever refuses it lists what there is.
    """
    if asked in (None, NONE):
        return None
    assert asked is not None
    table = plugins.quantizers()
    wanted = parse_quantize(asked)
    if wanted.quantizer:
        quantizer: Quantizer = plugins.load(table, wanted.quantizer)()
        return quantizer
    made: list[Quantizer] = [plugins.load(table, name)() for name in table]
    return next((found for found in made if wanted.method in found.methods), made[0])


def find_compilers(asked: str | None) -> Mapping[str, Compiler]:
    """Give who may be meant by `--compile`: everybody for `auto` or a wrong name, or nobody."""
    table = plugins.compilers() if asked not in (None, "off") else {}
    return {name: plugins.load(table, name)() for name in table}


def find_samples(request: BuildRequest) -> Samples | None:
    """Read and choose what a quantizer will look at; None where nothing is quantized."""
    if request.quantize in (None, NONE):
        return None
    count = request.calibration_samples or CALIBRATION_SAMPLES
    return _chosen_samples(request.calibration or DEFAULT, count, request.calibration_seed or 0)


def find_evaluation(request: BuildRequest, calibration: Samples | None) -> Samples | None:
    """Read and choose what quality is measured with, other texts than it was calibrated on."""
    if request.evaluation is None:
        return None
    count, seed = request.evaluate_samples or EVALUATION_SAMPLES, request.evaluate_seed or 0
    return evaluation_texts(request.evaluation, count, seed, calibration)


def evaluation_texts(
    reference: str, count: int, seed: int, calibration: Samples | None = None
) -> Samples:
    """Choose texts to measure quality with."""
    return choose_others(_all_samples(reference), count, seed, calibration)


def training_texts(
    reference: str,
    *,
    count: int | None,
    held_out: str | None,
    seed: int,
    broken: Literal["skip", "refuse"] = "skip",
) -> TrainingTexts:
    """Choose texts to train a head with, and others to measure it with: a share, or `held_out`."""
    from packager.adapters.samples.load import load_samples

    found = load_samples(reference, broken=broken)
    if held_out is not None:
        other = load_samples(held_out, broken=broken)
        return split_texts(found, other, count=count, seed=seed)
    return split_texts(found, None, count=count, seed=seed)


def head_tools_for(output: Path) -> HeadTools:
    """Choose who reads and writes a trained head; refuse a place that cannot be written."""
    from packager.adapters.training import check_head_place, read_head, read_training, write_head
    from packager.jobs.train_draft import HeadTools

    check_head_place(output)
    return HeadTools(
        read_report=read_training,
        read_head=read_head,
        write=lambda files: write_head(files, output),
    )


@cache  # ranking plans one model many times
def _chosen_samples(reference: str, count: int, seed: int) -> Samples:
    return choose_samples(_all_samples(reference), count, seed)


@cache
def _all_samples(reference: str) -> Samples:
    from packager.adapters.samples.load import load_samples

    return load_samples(reference)


def _tools_dir() -> Path:
    return share_dir("containers") / "tools"


def _tool_directory(name: str) -> Path:
    ours = _tools_dir() / name
    outside = plugins.tool_directories()
    if ours.is_dir() or name not in outside:
        return ours
    return Path(plugins.load(outside, name))


@contextmanager
def _run_steps(
    settings: Settings,
    executor: Executor,
    artifacts: Callable[[], ArtifactCache | None],
    remember: Remember,
) -> Iterator[RunStep]:
    from packager.adapters.executors.runner import StepRunner
    from packager.adapters.executors.workspace import Workspace

    with Workspace(cache_dir(settings) / "work") as workspace:
        runner = StepRunner(
            executor,
            artifacts,
            workspace,
            on_event=settings.on_event,
            warn=settings.on_warning,
            accept_larger=settings_of_cache(settings).match == "larger",
            retry_failed=settings.cache.retry_failed,
            remember=remember,
        )
        yield runner.run


def _foresee(
    step: Step,
    executor: Executor,
    artifacts: ArtifactCache | None,
    settings: Settings,
    remember: Remember,
) -> StepForecast:
    """Ask what is there; where a miss ends the build or leaves a step out, it can be explained."""
    from packager.adapters.executors.runner import foresee

    return foresee(
        step,
        artifacts,
        executor,
        accept_larger=settings_of_cache(settings).match == "larger",
        remember=remember if settings.on_miss != "run" else None,
    )


def _remember_lookups(settings: Settings) -> Remember:
    """Note what one build asks the cache, in place of what the one before it asked."""

    @cache
    def lookups() -> LastLookups:
        from packager.adapters.lookups import LastLookups

        return LastLookups(state_dir(settings.environment))

    return lambda step, found: lookups().remember(step, found)


def _pin_files(model: ModelFiles, settings: Settings, reader: BlobReader) -> ModelFiles:
    """Give files their digests. A plan takes those that are known and reads nothing."""
    from packager.adapters.pinning import pin_files

    unread = settings.headers_only and not settings.read_local
    index = DigestIndex(_state_file(settings))
    return pin_files(model, index, None if unread else reader)


def _load_base(base: BaseImage, reader: BlobReader, settings: Settings) -> str:
    """Have the Docker Engine hold a base image as it is; give its name there."""
    from packager.adapters.engine import connect_engine

    name = f"packager-base:{base.digest.removeprefix('sha256:')[:12]}"
    if connect_engine().images.list(name):
        return name
    sink = plugins.load(plugins.SINKS, "docker")(
        f"docker:{name}", reader=reader, on_event=settings.on_event
    )
    image = ImageSpec(base=base, layers=base.layers, runtime=RuntimeConfig(), created=EPOCH)
    write_image(
        image,
        [sink],
        reader=reader,
        index=DigestIndex(_state_file(settings)),
        on_event=settings.on_event,
    )
    return name


def _executor(settings: Settings, environments: Environments, reader: BlobReader) -> Executor:
    executor: Executor
    if settings.dry_run or settings.headers_only:
        executor = plugins.load(plugins.EXECUTORS, "dry_run")(environments.facts)
        return executor
    told: dict[str, Any] = {}
    if settings.executor == "docker":
        told["load_image"] = lambda base: _load_base(base, reader, settings)
    executor = plugins.load(plugins.EXECUTORS, settings.executor)(
        environments,
        **told,
        work_dir=cache_dir(settings) / "runs",
        log_dir=state_dir(settings.environment) / "logs",
        read=reader.chunks,
        on_event=settings.on_event,
        check=settings.check_capacity,
        restart=settings.restart,
    )
    return executor

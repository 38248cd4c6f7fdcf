"""Services that make slim bases: reading an image, writing the slim one, and proving it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from packager.addons.nodes.slim.record import SlimProof
from packager.addons.nodes.slim.scan import List
from packager.addons.nodes.slim_proof import prove_slim
from packager.cli.plugins.contexts import BaseContext
from packager.cli.plugins.tables import BASES
from packager.cli.run.fits_this_machine import why_not_here
from packager.cli.serving.smoke import PROMPT, smoke
from packager.cli.wiring.bases import layer_reader
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.outputs import (
    attach_to_all,
    preflight_all,
    refuse_trees,
    sink_context,
    sinks_for,
    write_out,
)
from packager.cli.wiring.registries import RegistryBlobs, registry_clients
from packager.cli.wiring.rows import CatalogRows
from packager.cli.wiring.settings import Settings, parse_output, settings_for
from packager.core.errors import UsageError
from packager.core.events import ignore
from packager.core.files.atomic import explain_disk_errors, user_dir
from packager.core.image import Attached, BaseImage, ImageSpec, Platform, SealedImage, Written
from packager.core.instance import LOCAL, Instance
from packager.core.record import Transfer
from packager.core.request import BuildRequest
from packager.core.share import PACKAGE
from packager.images.blobs import BlobReader
from packager.images.docker_engine import connect_engine
from packager.images.rootfs.reading import Chunks
from packager.images.target import parse_target
from packager.pipeline import pipeline

_TOKENS = 16
_READY_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimServices:
    """Services of one `packager base slim`."""

    find_base: Callable[[str, Platform], BaseImage]
    find_instance: Callable[[str], Instance]
    list_layers: List
    chunks: Chunks
    preflight: Callable[[Sequence[Instance], Platform], None]
    write: Callable[[ImageSpec], tuple[Written, Transfer]]
    attach: Callable[[SealedImage, Attached], None]
    work: Callable[[], AbstractContextManager[Path]]  # a directory for rewritten layers
    prove: Callable[[ImageSpec, Path], SlimProof] | None  # None: it is written without a proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Proving:
    """What a proof starts."""

    model: str
    original: str  # as the user named it
    family: str | None = None
    container_version: str | None = None


def slim_services_for(
    settings: Settings, proving: Proving | None = None, say: Callable[[str], None] = ignore
) -> SlimServices:
    """Return the services; raises for unusable outputs, before any work."""
    refuse_trees(settings.outputs, "base slim")
    clients = registry_clients(settings)
    reader = BlobReader((RegistryBlobs(clients),))
    context = sink_context(settings, reader, clients)
    sinks = sinks_for(settings.outputs, context)
    rows = CatalogRows(settings)

    def find_base(reference: str, platform: Platform) -> BaseImage:
        target = parse_target(reference, BASES)
        base = BASES.of_target(target).make(BaseContext(clients=clients)).facts(target, platform)
        if not base.layers:
            raise UsageError(f"{reference!r} has no layers", hint="name an image with a server")
        return base

    def preflight(machines: Sequence[Instance], platform: Platform) -> None:
        preflight_all(sinks)
        if proving is not None:
            _refuse_other_machines(machines, rows.this_machine)
            if platform != Platform():
                raise UsageError(
                    f"a base for {platform} cannot be started here",
                    hint="make it there, or use --no-prove and try it before it serves",
                )
            connect_engine(without="or use --no-prove")

    def prove(image: ImageSpec, work: Path) -> SlimProof:
        assert proving is not None
        target = parse_output(f"oci:{work / 'slim'}")
        write_out(image, sinks_for((target,), context), reader, settings)
        return _prove(proving, target.text, settings, say)

    return SlimServices(
        find_base=find_base,
        find_instance=rows.find_instance,
        list_layers=layer_reader(settings, reader).entries_of,
        chunks=reader.chunks,
        preflight=preflight,
        write=lambda image: write_out(image, sinks, reader, settings),
        attach=lambda image, artifact: attach_to_all(sinks, image, (artifact,)),
        work=lambda: _work_place(settings),
        prove=prove if proving else None,
    )


def shipped_model() -> str | None:
    """Return the small model of a checkout; None of an installed package, which has none."""
    place = PACKAGE.parent / "examples" / "tiny-llama"
    return str(place) if place.is_dir() else None


def _refuse_other_machines(machines: Sequence[Instance], here: Instance) -> None:
    """Refuse a proof that cannot run here: the base is for devices that this machine lacks."""
    for instance in machines:
        if instance.kind == here.kind == "cpu":
            continue  # the model is tiny; what the processor lacks, the start shows
        if why := why_not_here(replace(instance, device_bytes=0), here):
            raise UsageError(
                f"a base for {instance.name} cannot be started here: {why}",
                hint="make it there, or use --no-prove and try it before it serves",
            )


@contextmanager
def _work_place(settings: Settings) -> Iterator[Path]:
    """Yield a directory on the disk of caches; it is removed whatever happens."""
    root = user_dir("cache", settings.environment) / "packager"
    with explain_disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="slim-", dir=root))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _prove(
    proving: Proving, slim: str, settings: Settings, say: Callable[[str], None]
) -> SlimProof:
    engine = connect_engine(timeout_s=600.0, without="or use --no-prove")

    def build(base: str, name: str) -> str:
        request = BuildRequest(
            model=proving.model,
            instance=LOCAL,
            base=base,
            family=proving.family,
            container_version=proving.container_version,
            outputs=(f"docker:{name}",),
        )
        own = replace(
            settings_for(request),
            insecure_registries=settings.insecure_registries,
            ca_file=settings.ca_file,
            environment=settings.environment,
        )
        services = replace(services_for(own), save=ignore)  # not a build that the user requested
        pipeline.build(request, services)
        return name

    def remove(name: str) -> None:
        with suppress(Exception):  # it may never have been made
            engine.images.remove(name, force=True)

    return prove_slim(
        proving.model,
        build=build,
        ask=lambda name: smoke(
            engine, name, prompt=PROMPT, max_tokens=_TOKENS, deadline_s=_READY_S, on_progress=say
        ),
        remove=remove,
        original=proving.original,
        slim=slim,
        say=say,
    )

"""The artifact cache: opening it, importing and exporting entries."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packager.cli.plugins.contexts import ReadContext, SinkContext
from packager.cli.wiring.opened import open_image
from packager.cli.wiring.outputs import sinks_for
from packager.cli.wiring.registries import RegistryBlobs, registry_clients
from packager.cli.wiring.settings import Settings, digests_file, state_dir
from packager.core.errors import CachedFileChanged
from packager.core.events import StepEvent
from packager.core.files.atomic import can_write, user_dir
from packager.core.image import Platform
from packager.core.ports import ImageSink
from packager.core.references import ImageTarget
from packager.core.version import __version__
from packager.estimate.performance.effort import LABEL, PastRun, past_run
from packager.images.blobs import BlobReader
from packager.optimize.cache.settings import (
    CacheSettings,
    cache_settings,
    signing_key_file,
    trusted_keys_file,
)

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache
    from artifact_cache.entry import Entry
    from artifact_cache.store import CacheStore
    from artifact_cache.stores.archive import Imported
    from artifact_cache.trust import Signer, Trust
    from packager.optimize.cache.lookups import LastLookups
    from packager.optimize.steps.runner import Remember


def cache_dir(settings: Settings) -> Path:
    """Return the directory that holds the artifact cache and the builds' work directories."""
    named = settings.cache_dir or settings_of_cache(settings).directory
    return Path(named).absolute() if named else user_dir("cache", settings.environment) / "packager"


def work_root(settings: Settings) -> Path:
    """Return where builds work: beside the cache, so that a hit is a link.

    A read-only cache still gives hits: then the work is done in the state directory, and hits are
    copies.
    """
    beside, elsewhere = cache_dir(settings), state_dir(settings.environment)
    return elsewhere if not can_write(beside) and can_write(elsewhere) else beside


def settings_of_cache(settings: Settings) -> CacheSettings:
    """Return the cache settings of options, environment and the user's file."""
    return cache_settings(settings.cache, settings.environment)


def artifacts_dir(settings: Settings) -> Path:
    """Return the directory of the artifact cache."""
    return cache_dir(settings) / "artifacts"


class OpenCache:
    """The artifact cache of one run, opened on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opened: tuple[ArtifactCache | None] | None = None

    def __call__(self) -> ArtifactCache | None:
        """Return the cache; None when none is wanted."""
        if self._opened is None:
            self._opened = (artifact_cache_for(self._settings),)
        return self._opened[0]

    def distrust(self, found: CachedFileChanged) -> None:
        """Open it again for what follows, with every file hashed that comes out of it."""
        self._settings.on_warning(
            f"cache: {found.message}; it is looked for again, and every file is hashed"
        )
        self._opened = (artifact_cache_for(self._settings, always_hash=True),)


def artifact_cache_for(settings: Settings, *, always_hash: bool = False) -> ArtifactCache | None:
    """Open the artifact cache; None when none is wanted."""
    return open_artifact_cache(settings, always_hash=always_hash) if settings.use_cache else None


def open_artifact_cache(settings: Settings, *, always_hash: bool = False) -> ArtifactCache:
    """Open the artifact cache with the shared stores behind it.

    With `always_hash`, files are hashed even if their size and time are unchanged.
    """
    from artifact_cache import Notice, open_cache
    from packager.optimize.cache.errors import explained_cache_errors
    from packager.optimize.keys.policy import KIND_POLICY

    asked = settings_of_cache(settings)
    trust = trust_for(settings)
    if trust is not None and trust.keys and not trust.require_signed:
        settings.on_warning(
            "cache: there are trusted keys, and unsigned entries are used, too: an entry whose "
            "signature was stripped would be accepted; --require-signed refuses it"
        )

    def notify(notice: Notice) -> None:
        if notice.code == "store":  # of a shared store; a result would not tell
            settings.on_warning(f"cache: {notice.message}")
        else:
            settings.on_event(StepEvent(step="cache", state="running", detail=notice.message))

    with explained_cache_errors():
        return open_cache(
            artifacts_dir(settings),
            asked.shared,
            kinds=KIND_POLICY,
            builder_id=asked.builder_id,
            version=__version__,
            notify=notify,
            trust=trust,
            signer=signer_for(settings),
            always_hash=always_hash,
        )


def trust_for(settings: Settings) -> Trust | None:
    """Return whose entries may be used; None when no signature is required."""
    from artifact_cache import Trust, load_trusted_keys
    from packager.optimize.cache.errors import explained_cache_errors

    asked = settings_of_cache(settings)
    with explained_cache_errors():
        keys = load_trusted_keys(asked.trusted_keys) if asked.trusted_keys else {}
    return Trust(keys, asked.require_signed) if keys or asked.require_signed else None


def signer_for(settings: Settings) -> Signer | None:
    """Return the key that signs entries; None when they are not signed."""
    from artifact_cache import load_signer
    from packager.optimize.cache.errors import explained_cache_errors

    asked = settings_of_cache(settings)
    with explained_cache_errors():
        return load_signer(asked.signing_key) if asked.signing_key else None


def signing_key_place() -> Path:
    """Return the path of the user's signing key."""
    return signing_key_file(os.environ)


def trusted_keys_place() -> Path:
    """Return the path of the user's list of trusted keys."""
    return trusted_keys_file(os.environ)


def last_lookups(settings: Settings) -> tuple[Mapping[str, Any], ...]:
    """Return the cache look-ups of the last build."""
    from packager.optimize.cache.lookups import LastLookups

    return LastLookups(state_dir(settings.environment)).last()


def remember_lookups(settings: Settings) -> Remember:
    """Return a recorder of a build's cache look-ups, replacing those of the build before."""

    @cache
    def lookups() -> LastLookups:
        from packager.optimize.cache.lookups import LastLookups

        return LastLookups(state_dir(settings.environment))

    return lambda step, found: lookups().remember(step, found)


def past_runs(settings: Settings) -> tuple[PastRun, ...]:
    """Read from entries of this machine's cache what making them took, and by what."""
    from artifact_cache import Index

    place = artifacts_dir(settings)
    if not settings.use_cache or not place.is_dir():
        return ()
    entries = (one for one in Index(place).summaries() if LABEL in one.labels)
    found = (past_run(one.labels[LABEL], one.build_s) for one in entries)
    return tuple(one for one in found if one is not None)


def entry_sink(target: ImageTarget, settings: Settings) -> ImageSink:
    """Choose the sink that writes a cache entry as an artifact."""
    context = SinkContext(
        reader=BlobReader(),
        clients=registry_clients(settings),
        state_file=digests_file(settings),
        on_warning=settings.on_warning,
        on_event=settings.on_event,
    )
    [sink] = sinks_for((target,), context)
    return sink


def import_entries(
    source: ImageTarget,
    store: CacheStore,
    scratch: Callable[[], AbstractContextManager[Path]],
    settings: Settings,
) -> Imported:
    """Publish the entries of a registry or a layout; of a layout without a tag, all of them."""
    from artifact_cache.stores.archive import Imported
    from packager.optimize.cache.oci import entries_of_layout, import_entry

    clients = registry_clients(settings)
    reader = BlobReader((RegistryBlobs(clients),))
    context = ReadContext(clients=clients)
    published: list[Entry] = []
    known: list[Entry] = []
    for target in entries_of_layout(source):
        with scratch() as place:
            done = import_entry(
                target,
                store,
                place,
                open_image=lambda target: open_image(target, Platform(), context),
                reader=reader,
            )
        published += done.published
        known += done.known
    return Imported(published=tuple(published), known=tuple(known))

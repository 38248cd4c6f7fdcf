"""Mounting an image at a directory, listing what is mounted, and unmounting it.

The kernel's table says what is mounted; a record beside it only says of which image that is.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from packager.addons.nodes.mounts import syscalls
from packager.addons.nodes.mounts.failures import (
    kernel_lacks_erofs,
    mount_busy,
    not_mounted_here,
    not_root,
    place_not_free,
)
from packager.addons.nodes.mounts.layer_files import LayerFile, layer_in_layout, layer_in_node_cache
from packager.addons.nodes.mounts.table import MountedAt, read_mounts
from packager.addons.nodes.mounts.trees import SOURCE, detached_tree
from packager.addons.nodes.node_cache.entry_check import OnBytes
from packager.addons.nodes.node_cache.entry_file import Interrupted
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import NotFound
from packager.core.events import EventSink, StepEvent, ignore, working
from packager.core.files.atomic import explain_disk_errors, read_regular, write_atomically
from packager.core.text import escape
from packager.images.digest_index import DigestIndex
from packager.images.opened import OpenImage
from packager.images.selection import LayerChoice, choose_layers
from packager.images.stored import StoredLayer

_LONGEST_RECORD = 1024 * 1024
_MOST_USERS = 5
_AT_ONCE = 4
_FILE_SYSTEMS = Path("/proc/filesystems")
_PROCESSES = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOptions:
    """What is mounted, and from where."""

    layers: LayerChoice = "own"
    node_cache: Path | None = None  # take layers from it instead of the layout
    verify: bool = True  # hash what was not hashed since it was last written to


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMount:
    """A mounted image."""

    directory: Path
    image: str  # "" where no record says it
    digest: str
    layers: str  # a `LayerChoice`
    was_mounted: bool = False
    proven: bool = True  # every layer was hashed


def check_machine(command: str) -> None:
    """Refuse to mount without the rights, or on a kernel that cannot."""
    if os.geteuid() != 0:
        raise not_root(command)
    try:
        known = _FILE_SYSTEMS.read_text().split()
    except OSError:
        return  # the mount itself will report it
    for name in ("erofs", "overlay"):
        # The kernel loads a module at its first use.
        if name not in known and not _is_module(name):
            raise kernel_lacks_erofs(name)


def mount_image(
    source: OpenImage,
    directory: Path,
    options: MountOptions,
    *,
    records: Path,
    index: DigestIndex,
    on_event: EventSink = ignore,
) -> ImageMount:
    """Show the image's layers at a directory, read-only, without unpacking or copying them.

    The directory must be empty.  Where the same is mounted there already, nothing is done.
    """
    place = _place_of(directory)
    image = source.image
    wanted = ImageMount(
        directory=place,
        image=image.reference,
        digest=image.digest,
        layers=options.layers,
    )
    layers = choose_layers(image, options.layers)
    with ExitStack() as opened:
        target = _open_place(place)
        opened.callback(os.close, target)
        fcntl.flock(target, fcntl.LOCK_EX)  # who mounts there at the same time waits
        if found := _find_ours(place):
            known = _read_record(records, found)
            if (known.digest, known.layers) == (image.digest, options.layers):
                return known
            raise place_not_free(
                str(place),
                f"{known.image or 'another image'} is mounted there",
                f"run `packager unmount {place}` first",
            )
        _check_free(place, target)
        with explain_disk_errors(records):
            records.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = _open_layers(opened, source, layers, options, records, index, on_event)
        with explain_disk_errors(records):
            work = opened.enter_context(tempfile.TemporaryDirectory(prefix="work-", dir=records))
        tree = detached_tree(files, Path(work))
        opened.callback(os.close, tree)
        proven = all(file.proven for file in files)
        device = os.fstat(tree).st_dev
        _write_record(records, wanted, device, proven=proven)
        _attach(tree, target, place)
    _remove_stale_records(records)
    return ImageMount(
        directory=place,
        image=image.reference,
        digest=image.digest,
        layers=options.layers,
        proven=proven,
    )


def unmount_image(directory: Path, records: Path) -> ImageMount:
    """Remove a mount; raise `OutputFailed` where processes use it.

    With it go the layers below it and their loop devices.
    """
    place = _place_of(directory)
    found = _find_ours(place)
    if found is None:
        others = [one for one in read_mounts() if one.directory == str(place)]
        raise not_mounted_here(str(place), f"{others[-1].kind} is mounted there" if others else "")
    known = _read_record(records, found)
    try:
        syscalls.unmount(str(place))
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise mount_busy(str(place), _users_of(place)) from error
        raise not_mounted_here(str(place), str(error.strerror).lower()) from error
    _record_path(records, place).unlink(missing_ok=True)
    return known


def list_mounts(records: Path) -> tuple[ImageMount, ...]:
    """Return the images that are mounted, by directory."""
    ours = {one.directory: one for one in read_mounts()}
    return tuple(_read_record(records, ours[name]) for name in sorted(ours) if _is_ours(ours[name]))


def _open_layers(
    opened: ExitStack,
    source: OpenImage,
    layers: Sequence[StoredLayer],
    options: MountOptions,
    records: Path,
    index: DigestIndex,
    on_event: EventSink,
) -> list[LayerFile]:
    """Open the layers, several at once where they are hashed; `opened` closes them."""
    progress = _Progress(sum(layer.size for layer in layers), on_event)
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="layer")
    managers = [
        layer_in_node_cache(
            options.node_cache.absolute(),
            layer,
            index,
            verify=options.verify,
            on_bytes=progress.of(layer),
        )
        if options.node_cache is not None
        else layer_in_layout(
            source,
            layer,
            index,
            scratch=records,
            verify=options.verify,
            on_bytes=progress.of(layer),
        )
        for layer in layers
    ]
    with working(on_event, "layers"):
        futures: list[Future[LayerFile]] = []
        try:
            futures += [pool.submit(manager.__enter__) for manager in managers]
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            progress.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            for manager, future in zip(managers, futures, strict=False):
                if not future.cancelled() and future.exception() is None:
                    opened.push(manager.__exit__)
        failures = [future.exception() for future in futures if not future.cancelled()]
        for failure in sorted(failures, key=lambda error: isinstance(error, Interrupted)):
            if failure is not None:
                raise failure
    return [future.result() for future in futures]


class _Progress:
    """Bytes that were hashed of all layers, from several threads."""

    def __init__(self, size: int, on_event: EventSink) -> None:
        self.stop = threading.Event()
        self._size = size
        self._on_event = on_event
        self._done: dict[str, int] = {}

    def of(self, layer: StoredLayer) -> OnBytes:
        """Return the progress callback of one layer; it raises `Interrupted` after a stop."""

        def on_bytes(done: int) -> None:
            if self.stop.is_set():
                raise Interrupted
            self._done[layer.descriptor.digest] = done
            self._on_event(
                StepEvent(
                    step="layers",
                    state="running",
                    done=sum(list(self._done.values())),
                    size=self._size,
                )
            )

        return on_bytes


def _place_of(directory: Path) -> Path:
    """Return the path as the table of mounts spells it, without following its last part."""
    parent = directory.absolute().parent
    if directory.name in ("", ".."):
        return Path(os.path.realpath(directory))
    return Path(os.path.realpath(parent)) / directory.name


def _open_place(place: Path) -> int:
    """Open the directory that is mounted upon; links are not followed."""
    try:
        if stat.S_ISLNK(place.lstat().st_mode):
            raise place_not_free(
                str(place), "it is a link", f"name {str(place.resolve())!r} itself"
            )
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no directory {str(place)!r}", hint=f"make it with `mkdir -p {place}`"
        ) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise place_not_free(str(place), reason, "name an empty directory") from error


def _check_free(place: Path, target: int) -> None:
    if any(one.directory == str(place) for one in read_mounts()):
        raise place_not_free(
            str(place), "something else is mounted there", "name an empty directory"
        )
    with os.scandir(target) as inside:
        if next(inside, None) is not None:
            raise place_not_free(
                str(place), "it is not empty", "name an empty directory: its files would be hidden"
            )


def _attach(tree: int, target: int, place: Path) -> None:
    try:
        syscalls.attach(tree, target)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise place_not_free(str(place), reason, "name an empty directory") from error


def _find_ours(place: Path) -> MountedAt | None:
    """Return the uppermost mount at a directory where it is ours."""
    there = [one for one in read_mounts() if one.directory == str(place)]
    return there[-1] if there and _is_ours(there[-1]) else None


def _is_ours(mounted: MountedAt) -> bool:
    return (mounted.kind, mounted.source) == ("overlay", SOURCE)


def _is_module(name: str) -> bool:
    """Return whether the running kernel could load a file system."""
    modules = Path("/lib/modules", os.uname().release)
    return any(modules.glob(f"kernel/fs/{name}*/{name}.ko*"))


def _record_path(records: Path, place: Path) -> Path:
    return records / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}.json"


def _write_record(records: Path, mount: ImageMount, device: int, *, proven: bool) -> None:
    stated = {
        "directory": str(mount.directory),
        "image": mount.image,
        "digest": mount.digest,
        "layers": mount.layers,
        "device": [os.major(device), os.minor(device)],
        "proven": proven,
    }
    with explain_disk_errors(records):
        write_atomically(
            _record_path(records, mount.directory), json.dumps(stated).encode(), mode=0o600
        )


def _read_record(records: Path, mounted: MountedAt) -> ImageMount:
    """Return the record of a mount; ignore that of an earlier mount at the same place."""
    place = Path(mounted.directory)
    unknown = ImageMount(
        directory=place, image="", digest="", layers="", was_mounted=True, proven=False
    )
    try:
        stated = parse_object(
            read_regular(_record_path(records, place), _LONGEST_RECORD), max_bytes=_LONGEST_RECORD
        )
    except (OSError, NotStrict):
        return unknown
    if stated.get("device") != list(mounted.device):
        return unknown
    return ImageMount(
        directory=place,
        image=str(stated.get("image")),
        digest=str(stated.get("digest")),
        layers=str(stated.get("layers")),
        was_mounted=True,
        proven=stated.get("proven") is True,
    )


def _remove_stale_records(records: Path) -> None:
    """Remove records of what is mounted no more, and directories that killed runs left."""
    current = {_record_path(records, Path(one.directory)) for one in read_mounts()}
    for found in set(records.glob("*.json")) - current:
        with suppress(OSError):
            found.unlink()
    for left in records.glob("work-*"):
        with suppress(OSError):
            left.rmdir()  # empty, since what was mounted upon it went with its thread


def _users_of(place: Path) -> tuple[str, ...]:
    """Return the first processes that use files below a directory, as far as we may look."""
    found: list[str] = []
    for process in sorted(_PROCESSES.glob("[0-9]*"), key=lambda one: int(one.name)):
        if len(found) == _MOST_USERS:
            break
        with suppress(OSError):
            if any(_is_below(used, place) for used in _used_by(process)):
                name = (process / "comm").read_text("utf-8", "replace").strip()
                found.append(f"{escape(name)} (process {process.name})")
    return tuple(found)


def _used_by(process: Path) -> Sequence[str]:
    used = []
    for link in (process / "cwd", process / "root", process / "exe", *process.glob("fd/*")):
        with suppress(OSError):
            used.append(str(link.readlink()))
    with suppress(OSError):
        for line in (process / "maps").read_text("utf-8", "replace").splitlines():
            used.append(line.partition("/")[2] and "/" + line.partition("/")[2])
    return used


def _is_below(used: str, place: Path) -> bool:
    return used == str(place) or used.startswith(f"{place}/")

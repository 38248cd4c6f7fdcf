"""Layers as one read-only tree that is mounted at once or not at all.

The layers are mounted in a namespace that belongs to one thread and ends with it.  An overlay holds
what it needs of them, so that in the end one mount is left, which nobody can see until it is
attached to its directory.  If the process dies, the kernel removes the rest: mounts, loop devices,
files without names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from artifact_cache.waits import within
from packager.addons.nodes.mounts import syscalls
from packager.addons.nodes.mounts.failures import mount_failed
from packager.addons.nodes.mounts.layer_files import LayerFile

SOURCE = "packager"  # what the table of mounts says that ours are made of
_FLAGS = syscalls.MS_RDONLY | syscalls.MS_NODEV | syscalls.MS_NOSUID
# Marks in untrusted layers must not lead to other files of the overlay.
_OVERLAY = "redirect_dir=nofollow,metacopy=off"


def detached_tree(layers: Sequence[LayerFile], work: Path) -> int:
    """Return a descriptor of a mount that shows the layers, the last one uppermost.

    `work` is an empty directory, upon which nothing is mounted outside of the thread.
    """
    return within(None, lambda: _make(layers, work), "mounts")


def _make(layers: Sequence[LayerFile], work: Path) -> int:
    try:
        syscalls.enter_private_namespace()
        syscalls.mount(b"none", os.fsencode(work), b"tmpfs", _FLAGS & ~syscalls.MS_RDONLY, b"")
    except OSError as error:
        raise mount_failed("the image", error) from error
    with ExitStack() as opened:
        lower = []
        for number, layer in enumerate(layers):
            place = work / str(number)
            place.mkdir()
            _mount_layer(layer, place)
            lower.append(place)
        if len(lower) == 1:
            lower.insert(0, work / "nothing")  # an overlay has two layers or more
            lower[0].mkdir()
        names = []
        for place in reversed(lower):  # the uppermost first
            descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            names.append(_name_of(descriptor))
        tree = work / "tree"
        tree.mkdir()
        options = f"lowerdir={':'.join(names)},{_OVERLAY}"
        try:
            syscalls.mount(
                SOURCE.encode(),
                os.fsencode(tree),
                b"overlay",
                _FLAGS,
                options.encode(),
            )
            return syscalls.detach_copy(str(tree))
        except OSError as error:
            raise mount_failed("the overlay of the layers", error) from error


def _mount_layer(layer: LayerFile, place: Path) -> None:
    """Mount a layer's files, or loop devices of them where kernel or disk need that."""
    try:
        try:
            _mount_erofs(layer.metadata, layer.device, place)
        except OSError as error:
            if error.errno != errno.ENOTBLK:
                raise
            _mount_by_loops(layer, place)
    except OSError as error:
        raise mount_failed(f"layer {layer.layer.descriptor.digest}", error) from error


def _mount_by_loops(layer: LayerFile, place: Path) -> None:
    with ExitStack() as opened:
        devices = []
        for file in (layer.metadata, layer.device):
            if file is not None:
                device = syscalls.open_loop(file)
                opened.callback(_close, device)  # the mount holds it now
                devices.append(device)
        _mount_erofs(devices[0], devices[1] if len(devices) > 1 else None, place)


def _mount_erofs(metadata: int, device: int | None, place: Path) -> None:
    options = f"device={_name_of(device)}" if device is not None else ""
    syscalls.mount(
        _name_of(metadata).encode(), os.fsencode(place), b"erofs", _FLAGS, options.encode()
    )


def _name_of(descriptor: int) -> str:
    """Return a path of an open file: whatever has its name now, and without commas or colons."""
    return f"/proc/self/fd/{descriptor}"


def _close(descriptor: int) -> None:
    with suppress(OSError):
        os.close(descriptor)

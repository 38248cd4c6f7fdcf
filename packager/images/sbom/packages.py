"""Packages in an image's layers: Debian's, as dpkg lists them, and Python's distributions.

Layers are read once, from the lowest, and applied as container engines do: marks remove what lower
layers have.  Kept are the few files that name packages, and no more: `/var/lib/dpkg/status`,
`/var/lib/dpkg/status.d/*` (images without a shell), `*.dist-info/METADATA`, `os-release`.

Sources: deb-control(5), the core metadata of packaging.python.org, the purl type `deb` (2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from packager.core.image import Blob, Layer
from packager.core.units import MIB
from packager.images.rootfs.node import FileNode, Path
from packager.images.rootfs.reading import read_compared
from packager.images.rootfs.tar_reader import TarReader
from packager.images.rootfs.unpacking import check_types, layer_broken
from packager.images.sbom import purls
from packager.images.sbom.components import Component
from packager.images.sbom.licences import stated_license

MAX_FILE = 64 * MIB
MAX_FILES = 100_000
MAX_ALL = 256 * MIB
_STATUS = (b"var", b"lib", b"dpkg", b"status")
# States with all files; a base made on a machine of another kind has packages unpacked.
_THERE = ("installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
_EACH = (b"var", b"lib", b"dpkg", b"status.d")
_RELEASES = ((b"etc", b"os-release"), (b"usr", b"lib", b"os-release"))
_WHITEOUT, _OPAQUE = b".wh.", b".wh..wh..opq"
_LONGEST = 300  # characters of a name, version or licence
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_FIELD = re.compile(rb"^([A-Za-z][A-Za-z0-9-]*):[ \t]*(.*)$")

Chunks = Callable[[Blob], Iterator[memoryview]]


def packages_of(layers: Sequence[Layer], chunks: Chunks) -> tuple[Component, ...]:
    """Return the packages of an image; raise `PackagerError` for a layer that is broken."""
    check_types(layers)
    files: dict[Path, bytes] = {}
    for layer in layers:
        found = _LayerFiles(files)
        read_compared(layer, chunks(layer.blob), TarReader(found, sparse=True, contents=found))
        files = found.over()
        if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_ALL:
            raise layer_broken(layer.digest, "what names packages in it takes too much")
    release = next((_release(files[one]) for one in _RELEASES if one in files), {})
    listed = [files[_STATUS]] if _STATUS in files else []
    each = [data for path, data in sorted(files.items()) if path[: len(_EACH)] == _EACH]
    debian = chain.from_iterable(map(_debian, (*listed, *each)))
    wheels = (data for path, data in sorted(files.items()) if path[-1] == b"METADATA")
    unique = {
        one.ref: one
        for one in (
            *(_deb(fields, release) for fields in debian),
            *filter(None, map(_wheel, wheels)),
        )
    }
    return tuple(unique[ref] for ref in sorted(unique))


def _is_wanted(path: Path) -> bool:
    if path == _STATUS or path in _RELEASES:
        return True
    if path[:-1] == _EACH:
        return not path[-1].endswith(b".md5sums")
    return len(path) > 1 and path[-1] == b"METADATA" and path[-2].endswith(b".dist-info")


class _LayerFiles:
    """Takes the entries of one layer, and what they leave of the lower layers' files."""

    def __init__(self, lower: Mapping[Path, bytes]) -> None:
        self._lower = dict(lower)
        self._parents = {path[:depth] for path in lower for depth in range(1, len(path) + 1)}
        self._own: dict[Path, bytes] = {}

    def over(self) -> dict[Path, bytes]:
        """Return the files of this layer over those that it leaves."""
        return {**self._lower, **self._own}

    def add(self, path: Path, node: FileNode) -> None:
        """Apply a file of any kind, or a mark of a removed one."""
        name = path[-1] if path else b""
        if name == _OPAQUE:
            self._remove(path[:-1])
        elif name.startswith(_WHITEOUT):
            self._remove((*path[:-1], name.removeprefix(_WHITEOUT)))
        elif node.kind != "directory":
            self._replace(path)

    def link(self, path: Path, target: Path) -> None:
        """Apply another name of a file."""
        self._replace(path)
        data = self._own.get(target, self._lower.get(target))
        if data is not None and _is_wanted(path):
            self._own[path] = data

    def keeps(self, path: Path, node: FileNode) -> bool:
        """Whether the content of the file names packages."""
        return node.kind == "file" and node.size <= MAX_FILE and _is_wanted(path)

    def content(self, path: Path, data: bytes) -> None:
        """Receive the content of the file that was added last."""
        self._own[path] = data

    def _replace(self, path: Path) -> None:
        self._own.pop(path, None)
        self._remove(path)

    def _remove(self, path: Path) -> None:
        """Remove what lower layers have at a path and below it."""
        if path and path not in self._parents:
            return
        self._lower = {one: data for one, data in self._lower.items() if one[: len(path)] != path}


def _debian(status: bytes) -> Iterator[dict[str, str]]:
    """Yield the fields of the packages whose files dpkg has put there, configured or not."""
    is_list = b"\nStatus:" in status or status.startswith(b"Status:")
    for stanza in re.split(rb"\n[ \t]*\n", status):
        fields = _fields(stanza)
        if not (_NAME.fullmatch(fields.get("package", "")) and fields.get("version")):
            continue
        if not is_list or fields.get("status", "").rpartition(" ")[2] in _THERE:
            yield fields


def _deb(fields: Mapping[str, str], release: Mapping[str, str]) -> Component:
    name, version, arch = fields["package"], fields["version"], fields.get("architecture", "")
    source, _, said = fields.get("source", "").partition(" ")
    upstream = f"{source}@{said.strip('()')}" if said else source
    vendor = release.get("ID", "debian")
    distro = f"{vendor}-{release['VERSION_ID']}" if release.get("VERSION_ID") else ""
    purl = purls.deb(name, version, vendor=vendor, arch=arch, distro=distro, upstream=upstream)
    return Component(
        ref=f"base/deb/{name}/{version}/{arch}",
        type="library",
        name=name,
        version=version,
        purl=purl,
    )


def _wheel(metadata: bytes) -> Component | None:
    fields = _fields(metadata.partition(b"\n\n")[0])
    name, version = fields.get("name", ""), fields.get("version", "")
    if not (_NAME.fullmatch(name) and version):
        return None
    name = purls.normalised(name)
    stated = stated_license(fields.get("license-expression") or fields.get("license", ""))
    return Component(
        ref=f"base/pypi/{name}/{version}",
        type="library",
        name=name,
        version=version,
        purl=purls.pypi(name, version),
        licenses=(stated,) if stated else (),
    )


def _fields(stanza: bytes) -> dict[str, str]:
    """Return the fields of a stanza by lower-case name, first lines only; the first of two."""
    found: dict[str, str] = {}
    for line in stanza.splitlines():
        if match := _FIELD.match(line):
            value = match[2].decode("utf-8", "replace").strip()[:_LONGEST]
            found.setdefault(match[1].decode().lower(), value)
    return found


def _release(data: bytes) -> dict[str, str]:
    """Return ID and VERSION_ID of an os-release."""
    lines: Iterable[str] = data.decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines)
    words = {name: value.strip().strip("\"'") for name, _, value in pairs}
    return {
        name: words[name]
        for name in ("ID", "VERSION_ID")
        if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", words.get(name, ""))
    }

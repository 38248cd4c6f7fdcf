"""Packages of bases whose layers were read, on disk: one small file for each, by the base's digest.

A file that is damaged, or of another format, is as good as none; one that cannot be written is left
out.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from packager.core.documents import NotStrict, parse_model
from packager.core.errors import OutputFailed
from packager.core.files.atomic import read_regular, write_atomically
from packager.core.strict_models import StrictDocument
from packager.core.units import MIB
from packager.images.oci import is_digest
from packager.images.sbom.components import Component, LicenseClaim

_FORMAT = 1
_MOST = 64 * MIB


class KeptPackage(StrictDocument):
    """A package as it is kept: what an SBOM says of it."""

    ref: str
    name: str
    version: str
    purl: str
    license_id: str = ""
    license_name: str = ""


class KeptPackages(StrictDocument):
    """The packages of one base."""

    digest: str
    packages: tuple[KeptPackage, ...] = Field(max_length=200_000)


class PackageStore:
    """A directory of such files."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / f"v{_FORMAT}"

    def get(self, digest: str) -> tuple[Component, ...] | None:
        """Return a base's packages as they were put; None where there are none."""
        with suppress(OSError, NotStrict, zlib.error, ValueError):
            packed = zlib.decompressobj()
            data = packed.decompress(read_regular(self._path(digest), _MOST), _MOST)
            kept = parse_model(KeptPackages, data, max_bytes=_MOST)
            if packed.eof and kept.digest == digest:
                return tuple(map(_component, kept.packages))
        return None

    def put(self, digest: str, packages: tuple[Component, ...]) -> None:
        """Keep a base's packages."""
        kept = KeptPackages(digest=digest, packages=tuple(map(_kept, packages)))
        with suppress(OSError, OutputFailed):
            self._root.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(digest), zlib.compress(kept.model_dump_json().encode()))

    def _path(self, digest: str) -> Path:
        if not is_digest(digest):
            raise ValueError("no digest")
        return self._root / digest.removeprefix("sha256:")


def _kept(one: Component) -> KeptPackage:
    claim = one.licenses[0] if one.licenses else LicenseClaim()
    return KeptPackage(
        ref=one.ref,
        name=one.name,
        version=one.version,
        purl=one.purl,
        license_id=claim.id,
        license_name=claim.name,
    )


def _component(one: KeptPackage) -> Component:
    claim = LicenseClaim(id=one.license_id, name=one.license_name)
    return Component(
        ref=one.ref,
        type="library",
        name=one.name,
        version=one.version,
        purl=one.purl,
        licenses=(claim,) if claim.id or claim.name else (),
    )

"""Packages of a base, from its layers: what is installed at the end, and what hostile layers do."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.image import Layer
from packager.images.sbom.kept_packages import PackageStore
from packager.images.sbom.packages import packages_of
from tests.support.cases import cases
from tests.support.made_layers import file, layer_of, link, read, symlink, tar_of
from tests.support.refusals import raises_code

RELEASE = b'ID=debian\nVERSION_ID="12"\nNAME=x\n'
STATUS = b"""Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc (2.36-9)
Version: 2.36-9+deb12u7
Description: C library
 more: of it

Package: gone
Status: deinstall ok config-files
Version: 1

Package: adduser
Status: install ok installed
Architecture: all
Version: 3.134
"""
LIBC = "pkg:deb/debian/libc6@2.36-9%2Bdeb12u7?arch=amd64&distro=debian-12&upstream=glibc%402.36-9"
ADDUSER = "pkg:deb/debian/adduser@3.134?arch=all&distro=debian-12"
INFO = "usr/lib/python3/dist-packages/Foo_Bar-1.2.dist-info/METADATA"
WHEEL = (
    b"Metadata-Version: 2.4\nName: Foo_Bar\nVersion: 1.2\nLicense-Expression: MIT\n\nName: other\n"
)


def purls(*layers: Layer) -> list[str]:
    return [one.purl for one in packages_of(layers, lambda blob: iter([memoryview(read(blob))]))]


@pytest.mark.parametrize("packing", ["none", "gzip", "zstd"])
def test_what_is_installed_is_found(packing: str) -> None:
    members = [
        file("etc/os-release", RELEASE),
        file("var/lib/dpkg/status", STATUS),
        file(INFO, WHEEL),
        file("opt/METADATA", WHEEL),
    ]

    assert purls(layer_of(tar_of(members), packing)) == [ADDUSER, LIBC, "pkg:pypi/foo-bar@1.2"]


@cases("packages_that_are_unpacked_are_there_before_they_are_configured")
def test_packages_that_are_unpacked_are_there_before_they_are_configured(
    state: str, is_there: bool
) -> None:
    """A base that was made on a machine of another kind has no other ones."""
    status = f"Package: tool\nStatus: install ok {state}\nVersion: 1\n".encode()

    found = purls(layer_of(tar_of([file("var/lib/dpkg/status", status)]), "none"))

    assert bool(found) is is_there


def test_an_image_without_a_shell_has_a_file_for_each() -> None:
    stanza = b"Package: base-files\nVersion: 12\nArchitecture: amd64\n"
    members = [
        file("var/lib/dpkg/status.d/base", stanza),
        file("var/lib/dpkg/status.d/base.md5sums", b"Package: no\nVersion: 1\n"),
    ]

    assert purls(layer_of(tar_of(members))) == ["pkg:deb/debian/base-files@12?arch=amd64"]


@pytest.mark.parametrize(
    ("member", "left"),
    [
        (
            file(
                "var/lib/dpkg/status", b"Package: new\nStatus: install ok installed\nVersion: 2\n"
            ),
            2,
        ),
        (file("var/lib/dpkg/.wh.status"), 1),
        (file("var/lib/.wh.dpkg"), 1),
        (file("var/.wh..wh..opq"), 1),
        (file(".wh..wh..opq"), 0),
        (symlink("var/lib/dpkg/status", "/dev/null"), 1),
        (file("var/lib", b"now a file"), 1),
        (link("var/lib/dpkg/status", "etc/other"), 1),
        (file(f"{INFO.rpartition('/')[0].rpartition('/')[0]}/.wh.Foo_Bar-1.2.dist-info"), 2),
        (file("srv/.wh.status"), 3),
    ],
    ids=lambda given: given[0].name if isinstance(given, tuple) else str(given),
)
def test_an_upper_layer_removes_what_engines_remove(member: object, left: int) -> None:
    lower = layer_of(tar_of([file("var/lib/dpkg/status", STATUS), file(INFO, WHEEL)]))
    upper = layer_of(tar_of([member, file("etc/other", b"x")]))  # type: ignore[list-item]

    assert len(purls(lower, upper)) == left


def test_a_mark_says_nothing_of_its_own_layer() -> None:
    lower = layer_of(tar_of([file("var/lib/dpkg/status", STATUS)]))
    members = [file("var/lib/dpkg/status", STATUS[:150]), file("var/lib/dpkg/.wh..wh..opq")]

    assert len(purls(lower, layer_of(tar_of(members)))) == 1


@pytest.mark.parametrize(
    "status",
    [b"", b"\0" * 4096, b"Package: \nVersion: 1\n", b"Package: ../x\nVersion: 1\n", b"\xff" * 999],
    ids=["empty", "zeros", "no name", "a path", "no text"],
)
def test_what_names_no_package_is_none(status: bytes) -> None:
    assert purls(layer_of(tar_of([file("var/lib/dpkg/status", status)]))) == []


def test_a_layer_with_another_digest_is_refused() -> None:
    broken = layer_of(tar_of([file("var/lib/dpkg/status", STATUS)]))
    other = layer_of(tar_of([file("var/lib/dpkg/status", STATUS[:20])]))

    with raises_code("LayerBroken"):
        purls(
            Layer(role="base", blob=other.blob, media_type=broken.media_type, digest=broken.digest)
        )


def test_packages_are_kept_by_digest_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    layer = layer_of(tar_of([file("var/lib/dpkg/status", STATUS), file(INFO, WHEEL)]))
    found = packages_of([layer], lambda blob: iter([memoryview(read(blob))]))
    store, digest = PackageStore(tmp_path), f"sha256:{'a' * 64}"
    store.put(digest, found)
    [place] = tmp_path.rglob("a" * 64)

    assert store.get(digest) == found
    place.rename(place.with_name("b" * 64))
    assert store.get(f"sha256:{'b' * 64}") is None  # of another base
    place.with_name("b" * 64).write_bytes(b"x")
    assert store.get(f"sha256:{'b' * 64}") is None
    assert store.get(digest) is None

"""Image targets are parsed once, into what every sink and base needs of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.errors import UsageError
from packager.core.references import ImageTarget, LayoutTarget, Reference, RegistryTarget
from packager.images.target import is_archive, is_image, parse_target, started_name
from tests.support.cases import cases

BASES = ("registry", "oci", "docker", "embedded", "scratch")
DIGEST = "sha256:" + "0a" * 32


@cases("layout")
def test_a_layout_is_a_directory_a_tag_and_a_digest(
    text: str, directory: str, tag: str | None, digest: str | None
) -> None:
    found = parse_target(text)

    assert isinstance(found, LayoutTarget)
    assert (found.text, found.directory) == (text, Path(directory))
    assert (found.tag, found.digest) == (tag, digest)
    assert found.absolute() == found


@pytest.mark.parametrize("name", ["out", "latest"])
def test_the_directory_of_a_layout_is_absolute(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir("/")

    found = LayoutTarget(
        text=f"oci:{name}", scheme="oci", rest=name, directory=Path("/", name), tag=None
    )
    assert parse_target(f"oci:{name}") == found


@pytest.mark.parametrize("text", ["oci:", "oci::1", "oci:out:"])
def test_a_layout_without_a_directory_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no directory"):
        parse_target(text)


def test_what_has_no_scheme_is_in_a_registry() -> None:
    found = parse_target("localhost:5000/a/b:1")

    assert isinstance(found, RegistryTarget)
    assert found.scheme == "registry"
    assert found.image == Reference(host="localhost:5000", repository="a/b", tag="1")


def test_what_a_registry_cannot_have_is_refused() -> None:
    with pytest.raises(UsageError, match="'A' is not a repository name"):
        parse_target("r.example/A")


@cases("other")
def test_other_rows_take_what_stands_behind_their_scheme(text: str, scheme: str, rest: str) -> None:
    assert parse_target(text, BASES) == ImageTarget(text=text, scheme=scheme, rest=rest)


def test_a_row_from_outside_is_a_scheme() -> None:
    assert parse_target("s3image:b/k", ("s3image",)).rest == "b/k"
    assert parse_target("s3image:1").scheme == "registry"  # a repository and its tag


def test_a_tag_is_added_to_text_and_parts() -> None:
    layout, image = parse_target("oci:/out"), parse_target("r.example/a")
    assert isinstance(layout, LayoutTarget)
    assert isinstance(image, RegistryTarget)
    assert not layout.is_tagged
    assert not image.is_tagged

    assert layout.with_tag("1") == parse_target("oci:/out:1")
    assert image.with_tag("1") == parse_target("r.example/a:1")
    assert image.with_tag("1").is_tagged


def test_a_digest_takes_the_place_of_another() -> None:
    image = parse_target(f"r.example/a:1@sha256:{64 * 'f'}")
    assert isinstance(image, RegistryTarget)

    assert image.with_digest(DIGEST) == parse_target(f"r.example/a:1@{DIGEST}")
    assert image.is_tagged


def test_an_archive_is_a_file_and_no_layout() -> None:
    assert is_archive("entries.tar")
    assert not is_archive("oci:entries.tar")
    assert not is_archive("r.example/a:1")


@cases("image")
def test_what_names_an_image(text: str, expected: bool) -> None:
    assert is_image(text) is expected


@cases("a_layout_is_loaded_before_it_is_started")
def test_a_layout_is_loaded_before_it_is_started(text: str, name: str) -> None:
    with pytest.raises(UsageError, match="is no image of a Docker Engine") as refused:
        started_name(parse_target(text), "bench")

    assert refused.value.hint == (
        f"load it first: `packager copy {text} docker:{name}:latest`, "
        f"then `packager bench docker:{name}:latest`"
    )


@pytest.mark.parametrize("text", ["docker:i:1", "i:1", "docker:oci", f"host/i@sha256:{'1' * 64}"])
def test_what_an_engine_may_have_is_started_by_its_name_there(text: str) -> None:
    assert started_name(parse_target(text), "run") == text.removeprefix("docker:")


@pytest.mark.parametrize("text", ["{}", "docker:{}", "oci:{}", "r.example/{}"])
def test_a_wrong_digest_is_one_error_everywhere(text: str) -> None:
    with pytest.raises(UsageError, match="'sha256:12' is not a digest"):
        parse_target(text.format("i:1@sha256:12"))

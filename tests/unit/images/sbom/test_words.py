"""Names of packages and licences, and what a model card states."""

from __future__ import annotations

import json

import pytest

from packager.core.errors import ProtocolFailed
from packager.images.sbom import purls
from packager.images.sbom.licences import stated_license
from packager.images.sbom.reading import parse_sbom
from packager.models.model_card import read_card
from tests.support.cases import cases
from tests.support.known import known


@cases("licences")
def test_a_licence_of_a_hub_is_one_of_spdx_or_stays_a_name(
    word: str, name: str, link: str, spdx: str, stays: str, url: str
) -> None:
    found = known(stated_license(word, name, link))

    assert (found.id, found.name, found.url) == (spdx, stays, url)


@pytest.mark.parametrize("word", ["", "unknown", " "])
def test_no_licence_is_none(word: str) -> None:
    assert stated_license(word) is None


@cases("cards")
def test_a_card_is_read_as_far_as_it_can_be(
    card: str, license: str, bases: tuple[str, ...]
) -> None:
    found = read_card(card.encode("utf-8", "surrogateescape"))

    assert (found.license, found.base_models) == (license, bases)


def test_names_of_packages() -> None:
    commit = "0E9E39F249A16976918F6564B8830BC894C89659"
    assert purls.huggingface("meta-llama/Llama-3.1-8B", commit) == (
        f"pkg:huggingface/meta-llama/Llama-3.1-8B@{commit.lower()}"
    )
    assert purls.oci("host/Models/Tiny", "sha256:ab", "amd64") == (
        "pkg:oci/tiny@sha256%3Aab?arch=amd64"
    )
    assert purls.pypi("Foo_Bar.baz", "1.0+cpu") == "pkg:pypi/foo-bar-baz@1.0%2Bcpu"
    assert purls.deb("libc6", "2.36-9", arch="amd64", distro="debian-12", upstream="") == (
        "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=debian-12"
    )


@cases("broken")
def test_what_is_no_sbom_is_refused(document: str) -> None:
    """An SBOM may be anybody's: it is checked before a view takes it apart."""
    with pytest.raises(ProtocolFailed, match="cannot be used"):
        parse_sbom(document.encode(), "IMAGE")


def test_a_deep_sbom_is_refused() -> None:
    part = {"type": "file", "bom-ref": "x", "name": "x"}
    for _ in range(100):
        part = {**part, "components": [part]}  # type: ignore[dict-item]
    whole = {
        "bomFormat": "CycloneDX",
        "metadata": {"tools": {"components": [{"name": "t"}]}, "component": part},
    }
    with pytest.raises(ProtocolFailed, match="cannot be used"):
        parse_sbom(json.dumps(whole).encode(), "IMAGE")

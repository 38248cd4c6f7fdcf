from __future__ import annotations

from pathlib import Path

from packager.catalog.registries import registries, traits_of
from packager.catalog.user_catalog import load_user_catalog
from packager.core.registry import UNKNOWN_REGISTRY, UPLOAD_FORMS, RegistryTraits
from packager.core.units import MIB
from tests.support.cases import cases, read_tables
from tests.support.refusals import raises_code

PROXY = read_tables(__file__)["proxy"]


def load(tmp_path: Path, text: str) -> tuple[RegistryTraits, ...]:
    (tmp_path / "catalog.toml").write_text(text)
    none = {"XDG_CONFIG_HOME": str(tmp_path / "none")}
    return load_user_catalog(tmp_path / "catalog.toml", none).registries


@cases("a_registry_is_known_by_its_host")
def test_a_registry_is_known_by_its_host(host: str, name: str) -> None:
    assert traits_of(host).name == name


def test_every_form_is_one_that_uploads_know() -> None:
    for row in registries():
        assert row.forms
        assert set(row.forms) <= set(UPLOAD_FORMS), row.name


def test_nothing_is_known_of_other_registries() -> None:
    assert traits_of("registry.example.com") is UNKNOWN_REGISTRY


def test_a_row_of_the_user_wins(tmp_path: Path) -> None:
    own = load(tmp_path, PROXY)

    found = traits_of("registry.example.com", own)

    assert (found.body_bytes, found.layer_bytes, found.upload_s) == (90 * MIB, 4096 * MIB, 150.0)
    assert traits_of("a.example.com:5000", own) == found
    assert traits_of("a.example.com", own) is UNKNOWN_REGISTRY


def test_a_row_of_the_user_replaces_the_shipped_one_of_the_same_name(tmp_path: Path) -> None:
    own = load(tmp_path, PROXY.replace("behind the company proxy", "GitHub"))

    assert traits_of("ghcr.io", own) is UNKNOWN_REGISTRY


@cases("a_wrong_row_of_the_user_is_named")
def test_a_wrong_own_row_is_named(tmp_path: Path, change: tuple[str, str], why: str) -> None:
    with raises_code("UserCatalogWrong", match=f"behind the company proxy: {why}"):
        load(tmp_path, PROXY.replace(*change))

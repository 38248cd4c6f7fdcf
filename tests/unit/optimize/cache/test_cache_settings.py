"""Options win over the environment, and that over the user's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.errors import UsageError
from packager.optimize.cache.options import CacheOptions
from packager.optimize.cache.settings import (
    CacheSettings,
    cache_settings,
    signing_key_file,
    trusted_keys_file,
)
from tests.support.cases import as_type, cases, read_tables

TABLES = read_tables(__file__)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "packager").mkdir()
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def standing(environment: dict[str, str], text: str) -> None:
    Path(environment["XDG_CONFIG_HOME"], "packager/cache.toml").write_text(text)


WHOLE = TABLES["whole"]


def test_nothing_is_set_unless_somebody_sets_it(environment: dict[str, str]) -> None:
    assert cache_settings(CacheOptions(), environment) == CacheSettings()


def test_the_environment_wins_over_the_file(environment: dict[str, str]) -> None:
    standing(environment, WHOLE)
    expected = as_type(TABLES["settings_of_the_file"], CacheSettings)
    assert cache_settings(CacheOptions(), environment) == expected

    environment |= TABLES["environment"]
    expected = as_type(TABLES["settings_of_the_environment"], CacheSettings)
    assert cache_settings(CacheOptions(), environment) == expected


def test_an_empty_variable_takes_shared_stores_away(environment: dict[str, str]) -> None:
    standing(environment, WHOLE)

    assert cache_settings(CacheOptions(), environment | {"PACKAGER_CACHE_SHARED": ""}).shared == ()


def test_options_win_over_everything(environment: dict[str, str]) -> None:
    standing(environment, WHOLE)
    environment["PACKAGER_CACHE_REQUIRE_SIGNED"] = "1"
    options = CacheOptions(
        shared=("dir:/o",), require_signed=False, signing_key=Path("/o"), match="exact"
    )

    found = cache_settings(options, environment)

    assert (found.shared, found.require_signed, found.signing_key, found.match) == (
        ("dir:/o",),
        False,
        Path("/o"),
        "exact",
    )


def test_keys_of_the_users_own_are_found(environment: dict[str, str]) -> None:
    signing_key_file(environment).write_text("")
    trusted_keys_file(environment).write_text("")

    found = cache_settings(CacheOptions(), environment)

    assert found.signing_key == signing_key_file(environment)
    assert found.trusted_keys == trusted_keys_file(environment)


@cases("wrong")
def test_a_wrong_file_names_the_setting(environment: dict[str, str], text: str, words: str) -> None:
    standing(environment, text)

    with pytest.raises(UsageError, match=words):
        cache_settings(CacheOptions(), environment)


@pytest.mark.parametrize("name", ["PACKAGER_CACHE_REQUIRE_SIGNED", "PACKAGER_CACHE_MATCH"])
def test_a_wrong_variable_is_refused(environment: dict[str, str], name: str) -> None:
    with pytest.raises(UsageError, match=name):
        cache_settings(CacheOptions(), environment | {name: "perhaps"})

"""Settings of the artifact cache, from options, environment variables and a file.

    ~/.config/packager/cache.toml

    directory = "/srv/packager"                 # PACKAGER_CACHE, --cache-dir
    shared = ["s3://acme-models/packager"]      # PACKAGER_CACHE_SHARED, --cache-shared
    require_signed = true                       # PACKAGER_CACHE_REQUIRE_SIGNED, --require-signed
    trusted_keys = "/etc/packager/keys.json"    # PACKAGER_CACHE_TRUSTED_KEYS, --trusted-keys
    signing_key = "/etc/packager/key.pem"       # PACKAGER_CACHE_SIGNING_KEY, --signing-key
    match = "larger"                            # PACKAGER_CACHE_MATCH, --cache-match
    builder_id = "ci@acme"                      # PACKAGER_CACHE_BUILDER_ID

Options win over the environment, and that over the file.  Keys that are not
named anywhere are those that `packager cache keygen` and `trust` keep in the
same directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from packager.core.documents import MAX_TOML_BYTES, parse_toml
from packager.core.errors import UsageError
from packager.core.files.atomic import user_dir
from packager.core.files.pipes import open_waiting
from packager.core.files.user_files import expand_home
from packager.core.validation import first_fault
from packager.optimize.cache.options import CacheOptions, MatchRule

_YES = ("1", "yes", "true", "on")
_NO = ("", "0", "no", "false", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Effective cache settings."""

    directory: Path | None = None  # None: the user's cache directory
    shared: tuple[str, ...] = ()  # addresses of shared stores, nearest first
    require_signed: bool = False
    trusted_keys: Path | None = None  # None: no file of keys
    signing_key: Path | None = None  # None: entries are not signed
    match: MatchRule = "exact"
    builder_id: str = ""


class _File(BaseModel):
    model_config = ConfigDict(defer_build=True, strict=True, extra="forbid")

    directory: str | None = None
    shared: list[str] = []
    require_signed: bool = False
    trusted_keys: str | None = None
    signing_key: str | None = None
    match: MatchRule | None = None
    builder_id: str = ""


def cache_settings(options: CacheOptions, environment: Mapping[str, str]) -> CacheSettings:
    """Merge options, environment and file."""
    own = config_dir(environment)
    standing = _standing(own / "cache.toml")
    return CacheSettings(
        directory=_path(environment.get("PACKAGER_CACHE")) or _path(standing.directory),
        shared=options.shared or _listed(environment, standing),
        require_signed=_require_signed(options, environment, standing),
        trusted_keys=options.trusted_keys
        or _path(environment.get("PACKAGER_CACHE_TRUSTED_KEYS"))
        or _path(standing.trusted_keys)
        or _if_there(trusted_keys_file(environment)),
        signing_key=options.signing_key
        or _path(environment.get("PACKAGER_CACHE_SIGNING_KEY"))
        or _path(standing.signing_key)
        or _if_there(signing_key_file(environment)),
        match=options.match or _match(environment) or standing.match or "exact",
        builder_id=environment.get("PACKAGER_CACHE_BUILDER_ID") or standing.builder_id,
    )


def config_dir(environment: Mapping[str, str]) -> Path:
    """Return the directory of the user's settings."""
    return user_dir("config", environment) / "packager"


def signing_key_file(environment: Mapping[str, str]) -> Path:
    """Return the default path of the user's signing key."""
    return config_dir(environment) / "cache-signing-key.pem"


def trusted_keys_file(environment: Mapping[str, str]) -> Path:
    """Return the default path of the user's trusted keys."""
    return config_dir(environment) / "cache-trusted-keys.json"


def _standing(path: Path) -> _File:
    try:
        with open_waiting(path) as file:
            parsed = parse_toml(file.read(MAX_TOML_BYTES + 1))
        return _File.model_validate(parsed)
    except FileNotFoundError:
        return _File()
    except OSError as error:
        raise UsageError(
            f"cannot read {str(path)!r}: {(error.strerror or '').lower()}",
            hint="make it readable for you, or remove it",
        ) from error
    except ValidationError as error:
        raise UsageError(
            f"{str(path)!r}: {first_fault(error)}",
            hint=f"its settings are {', '.join(_File.model_fields)}",
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{str(path)!r} cannot be parsed: {error}",
            hint=f"correct it; its settings are {', '.join(_File.model_fields)}",
        ) from error


def _listed(environment: Mapping[str, str], standing: _File) -> tuple[str, ...]:
    named = environment.get("PACKAGER_CACHE_SHARED")
    if named is None:
        return tuple(standing.shared)
    return split_addresses(named)


def split_addresses(text: str) -> tuple[str, ...]:
    """Split addresses at commas."""
    return tuple(address.strip() for address in text.split(",") if address.strip())


def _require_signed(options: CacheOptions, environment: Mapping[str, str], standing: _File) -> bool:
    if options.require_signed is not None:
        return options.require_signed
    named = environment.get("PACKAGER_CACHE_REQUIRE_SIGNED")
    if named is None:
        return standing.require_signed
    if named.lower() not in (*_YES, *_NO):
        raise UsageError(f"PACKAGER_CACHE_REQUIRE_SIGNED is {named!r}", hint="set it to 1 or 0")
    return named.lower() in _YES


def _match(environment: Mapping[str, str]) -> MatchRule | None:
    named = environment.get("PACKAGER_CACHE_MATCH")
    if not named:
        return None
    for rule in get_args(MatchRule):
        if named == rule:
            return rule  # type: ignore[no-any-return]
    raise UsageError(f"PACKAGER_CACHE_MATCH is {named!r}", hint="set it to exact or larger")


def _path(named: str | None) -> Path | None:
    return expand_home(named).absolute() if named else None


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None

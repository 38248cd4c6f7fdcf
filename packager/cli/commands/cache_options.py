"""Options about the artifact cache and about running one step."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import click

from packager.cli.options import address_option, executor_option
from packager.cli.shared_options import Command
from packager.optimize.cache.options import CacheOptions, MatchRule
from packager.optimize.cache.settings import split_addresses


def cache_options(command: Command) -> Command:
    """Add where results of steps are kept, and whether that is done at all."""
    off = click.option("--no-cache", is_flag=True, help="Run every step, and store no result.")
    retry = click.option(
        "--retry-failed", is_flag=True, help="Also run steps that a tool rejected before."
    )
    match = click.option(
        "--cache-match",
        type=click.Choice(("exact", "larger")),
        help="larger: an artifact compiled for a larger shape will do, and decides the shape.",
    )
    return cache_place_options(off(retry(match(command))))


def cache_place_options(command: Command) -> Command:
    """Add where the artifact cache is, and whose entries it may use."""
    for option in reversed(
        (
            click.option(
                "--cache-dir",
                type=click.Path(path_type=Path, file_okay=False),
                metavar="DIR",
                help="Where results of steps are kept; PACKAGER_CACHE, else ~/.cache/packager.",
            ),
            click.option(
                "--cache-shared",
                multiple=True,
                metavar="ADDRESS",
                help="A store shared with others, s3://BUCKET/PREFIX or dir:/PATH; ro: in front "
                "only reads. Repeatable; PACKAGER_CACHE_SHARED.",
            ),
            click.option(
                "--require-signed/--no-require-signed",
                default=None,
                help="Use only entries signed by a trusted key; PACKAGER_CACHE_REQUIRE_SIGNED.",
            ),
            click.option(
                "--trusted-keys",
                type=click.Path(path_type=Path, dir_okay=False),
                metavar="FILE",
                help="Keys whose entries may be used; PACKAGER_CACHE_TRUSTED_KEYS.",
            ),
            click.option(
                "--signing-key",
                type=click.Path(path_type=Path, dir_okay=False),
                metavar="FILE",
                help="Sign entries with this key; PACKAGER_CACHE_SIGNING_KEY.",
            ),
        )
    ):
        command = option(command)
    return command


def cache_given(
    cache_shared: tuple[str, ...] = (),
    require_signed: bool | None = None,
    trusted_keys: Path | None = None,
    signing_key: Path | None = None,
    cache_match: MatchRule | None = None,
    retry_failed: bool = False,
) -> CacheOptions:
    """Return the values of the options that `cache_options` adds."""
    return CacheOptions(
        shared=tuple(address for text in cache_shared for address in split_addresses(text)),
        require_signed=require_signed,
        trusted_keys=trusted_keys,
        signing_key=signing_key,
        match=cache_match,
        retry_failed=retry_failed,
    )


CACHE_OPTIONS = tuple(inspect.signature(cache_given).parameters)


def take_cache_options(given: dict[str, Any]) -> CacheOptions:
    """Remove what `cache_options` added from a command's arguments."""
    return cache_given(**{name: given.pop(name) for name in CACHE_OPTIONS if name in given})


def take_cache_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Return what `cache_options` added, as fields of `wiring.Settings`."""
    return {
        "cache_dir": given.pop("cache_dir"),
        "use_cache": not given.pop("no_cache"),
        "cache": take_cache_options(given),
    }


def step_options(command: Command) -> Command:
    """Add how the one step of a command is run."""
    for option in (
        click.option(
            "--no-capacity-check",
            is_flag=True,
            help="Start steps that seem too large for this machine.",
        ),
        address_option,
        executor_option,
    ):
        command = option(command)
    return command


def take_step_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return what `cache_options` and `step_options` added, as fields of `wiring.Settings`."""
    return {
        **take_cache_settings(given),
        "executor": given.pop("executor") or "local",
        "address": given.pop("address") or "",
        "check_capacity": not given.pop("no_capacity_check"),
    }

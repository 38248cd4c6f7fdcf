"""`packager base`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from packager.cli.addons import Rows
from packager.cli.lazy import LazyGroup, ShortNames
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option, parse_platform
from packager.cli.terminal import note, print_json, print_line, print_value
from packager.images.bases.embedded import BASES, BUILDERS, build_base, find_built


class BaseGroup(ShortNames, LazyGroup):
    """The commands about bases."""

    takes_added = "base"
    sections: Mapping[str, Rows] = {
        "Commands": {
            "build": (
                "packager.cli.commands.base:base_build",
                "Build a serving base; print its digest.",
            ),
            "ls": (
                "packager.cli.commands.base:base_list",
                "List the serving bases and where the built ones are.",
            ),
        },
    }


@click.group(cls=BaseGroup)
def base() -> None:
    """Build and slim base images."""


@click.command("build")
@click.argument("name", type=click.Choice(BASES))
@click.option(
    "--platform",
    type=click.Choice(tuple(BUILDERS)),
    help="What the base is for; this machine by default. Elsewhere no program of the base runs.",
)
@progress_options
def base_build(name: str, platform: str | None, progress: str, quiet: bool) -> None:
    """Build a serving base (root on Debian, a few minutes) and print its digest.

    Built once: the result is kept and used by `--base embedded:NAME`.

    \b
    packager base build vllm-cpu
    packager base build vllm-cpu --platform linux/arm64
    """
    wanted = parse_platform(platform) if platform else None
    with shown_progress(progress, quiet=quiet) as on_event:
        digest = build_base(name, wanted, on_event=on_event, say=note)
    print_value(digest)


@click.command("ls")
@format_option
def base_list(output_format: str) -> None:
    """List the serving bases and where the built ones are.

    \b
    packager base ls
    """
    places = {
        (name, platform): find_built(name, parse_platform(platform))
        for name in BASES
        for platform in BUILDERS
    }
    if output_format == "json":
        rows = [
            {"name": name, "platform": platform, "place": str(place) if place else None}
            for (name, platform), place in places.items()
        ]
        print_json(rows)
        return
    for (name, platform), place in places.items():
        missing = f"not built: packager base build {name} --platform {platform}"
        print_line(f"{name}  {platform}  {place or missing}")

"""What `mount` and `node-cache` have in common: which layers, and how images are opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from packager.addons.nodes.wiring.node_caches import NodeImageServices, node_image_services_for
from packager.cli.shared_options import Command
from packager.cli.terminal import warn
from packager.cli.wiring.settings import Settings
from packager.core.events import EventSink
from packager.images.selection import CHOICES, LayerChoice


def layers_option(default: LayerChoice) -> Callable[[Command], Command]:
    """Return a decorator that adds --layers."""
    return click.option(
        "--layers",
        type=click.Choice(tuple(CHOICES)),
        default=default,
        show_default=True,
        help="Which layers: the whole image, what packager added to the base, or the weights.",
    )


def node_services(
    on_event: EventSink, insecure_registries: tuple[str, ...], ca_file: Path | None
) -> NodeImageServices:
    """Return what opens images for nodes, as `image_options` asked."""
    return node_image_services_for(
        Settings(
            on_event=on_event,
            on_warning=warn,
            insecure_registries=insecure_registries,
            ca_file=ca_file,
        )
    )

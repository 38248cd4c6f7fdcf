"""What the user asked for, as written. Also the schema of a request file."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class BuildRequest(BaseModel):
    """One build: a model for an instance, and where the image shall go.

    Fields left at None are chosen by the planner, which says what it chose.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", str_min_length=1)

    model: str = Field(description="a directory, or a hub id `org/name[@revision]`")
    instance: str = Field(description="instance type such as `ml.g5.xlarge`, or `local`")
    family: str | None = Field(default=None, description="serving container family")
    base: str | None = Field(
        default=None,
        description="base image: registry reference, `oci:DIR`, `docker:NAME`, or `scratch`",
    )
    outputs: tuple[str, ...] = Field(
        default=(), description="`oci:DIR`, `docker:NAME:TAG` or `REGISTRY/REPOSITORY:TAG`"
    )
    served_name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$",
        description="the name clients put into `model`",
    )
    tp_degree: PositiveInt | None = Field(default=None, description="tensor-parallel degree")
    max_batch: PositiveInt | None = None
    max_input_tokens: PositiveInt | None = None
    max_total_tokens: PositiveInt | None = None
    weights: Literal["baked"] = Field(
        default="baked", description="where the weights are at run time"
    )

"""What a user wants of an endpoint of SageMaker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerWanted:
    """Options of an endpoint; what is None is left to SageMaker, or follows from the image."""

    role_arn: str = ""  # that SageMaker takes to pull and to read
    instances: int = 1
    ami: str | None = None

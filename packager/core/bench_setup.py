"""What a measured server is: of loads and of cold starts."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class BenchSetup(BaseModel):
    """What was measured, as far as it is known. Unknown values are "" or None."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", allow_inf_nan=False)

    model: str = ""
    instance: str = ""
    tp_degree: int | None = None
    precision: str = ""
    quantization: str | None = None  # "none" for none
    draft: str | None = None  # a kind; "none" for none
    engine: str = ""  # such as `vllm 0.32.0`
    digest: str = ""  # of the image

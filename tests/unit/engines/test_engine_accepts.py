"""Every golden configuration of vLLM and LMI, given to vLLM's own argument parser.

vLLM comes from the virtual environment that PACKAGER_VLLM_VENV names, else out of the
layers of the serving base, which is built where it is not there yet.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from packager.core.techniques import Draft
from packager.findings import errors_in
from tests.golden.cases import family_of
from tests.support.engine_plans import EAGLE3, FP8_AT_LOAD, plan_for
from tests.support.vllm_packages import python_3_11, unpacked_base

REFUSED_BY_US: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lmi", {"engine_options": (("speculative_draft_model", "/opt/packager/draft"),)}),
    ("lmi", {"engine_options": (("max_num_batched", "4096"),)}),
    ("lmi", {"engine_options": (("enable_prefix_caching", "on"),)}),
    ("lmi", {"served_name": "false"}),
    ("vllm", {"served_name": "true"}),
    ("vllm-cpu", {"quantization": FP8_AT_LOAD.__class__(method="awk", scheme="W4A16", bits=4)}),
    ("vllm-cpu", {"draft": Draft(kind="draft_model", speculative_tokens=3), "kv_dtype": "fp7"}),
    ("vllm-0.33", {"draft": Draft(kind="medusa", speculative_tokens=3, heads=3, head_layers=1)}),
    ("lmi-14", {"draft": EAGLE3}),
)


@pytest.fixture(scope="module")
def vllm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], dict[str, str]]:
    """Return the command of an interpreter that has vLLM, and its environment."""
    interpreter, environment = _find_vllm(request, tmp_path_factory)
    return interpreter, {**environment, "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}


@pytest.mark.parametrize(("container", "changes"), REFUSED_BY_US, ids=str)
def test_what_vllm_would_drop_or_fail_on_later_we_refuse(
    container: str, changes: dict[str, Any]
) -> None:
    plan = plan_for(container, **changes)

    assert errors_in(family_of(plan.container.family).check(plan))


def _find_vllm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], dict[str, str]]:
    given = os.environ.get("PACKAGER_VLLM_VENV")
    home = str(tmp_path_factory.mktemp("vllm-home"))
    environment = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONDONTWRITEBYTECODE": "1"}
    if given:
        return [str(Path(given) / "bin" / "python")], environment
    request.getfixturevalue("serving_base")
    site = unpacked_base()
    return [python_3_11(), "-S"], environment | {"PYTHONPATH": str(site)}

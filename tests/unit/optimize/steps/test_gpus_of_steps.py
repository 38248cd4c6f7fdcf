"""GPUs for steps: what is asked for, what a step can use, what there is."""

from __future__ import annotations

from typing import Any

import pytest

from packager.core.devices import GpuRequest, Gpus, GpuUse, choose_gpus, choose_threads, gpus_in
from packager.core.units import GIB
from packager.optimize.steps.gpus import check_gpu_request, check_gpu_use
from tests.support.cases import cases

A10G = Gpus(count=4, bytes=24 * GIB)


def gpus(there: tuple[int, int] | None) -> Gpus | None:
    return None if there is None else Gpus(count=there[0], bytes=there[1] * GIB)


@cases("gpus")
def test_a_step_gets_what_helps_and_is_there(
    wish: GpuRequest, use: dict[str, Any], there: tuple[int, int] | None, given: int
) -> None:
    sizes = {
        f"{of}_bytes": use.pop(f"{of}_gib") * GIB for of in ("all", "each") if f"{of}_gib" in use
    }

    assert choose_gpus(wish, GpuUse(**use, **sizes), gpus(there)) == given


@cases("wishes")
def test_more_gpus_than_there_are_is_refused(
    wish: GpuRequest, there: tuple[int, int] | None, said: str | None
) -> None:
    found = list(check_gpu_request(wish, gpus(there)))

    wrong = [(one.severity, one.code, one.message, "--gpus" in one.hint) for one in found]
    assert wrong == ([("error", "gpus-missing", said, True)] if said else [])


def test_gpus_that_would_idle_are_told() -> None:
    (found,) = check_gpu_use("quantize", 4, GpuUse(most=1), A10G)

    assert (found.severity, found.code) == ("note", "gpus-idle")
    assert found.message == "4 GPUs are requested; step 'quantize' uses 1"
    assert found.hint == "use `--gpus 1`"


@pytest.mark.parametrize(("wish", "severity"), [("auto", "note"), (1, "error")])
def test_a_gpu_too_small_for_a_layer_is_told_before_work(wish: GpuRequest, severity: str) -> None:
    (found,) = check_gpu_use("quantize", wish, GpuUse(most=1, each_bytes=30 * GIB), A10G)

    assert (found.severity, found.code) == (severity, "gpu-too-small")
    assert "30.0 GiB on a GPU, each has 24.0 GiB" in found.message


def test_an_executor_that_says_nothing_of_gpus_is_not_one_without() -> None:
    assert gpus_in({}) is None
    assert gpus_in({"gpus": 0.0, "gpu_bytes": 0.0}) == Gpus(count=0)
    assert gpus_in({"gpus": 2.0, "gpu_bytes": 5e9}) == Gpus(count=2, bytes=5_000_000_000)


@cases("threads")
def test_a_step_computes_with_the_cores_where_that_helps(
    wish: int | None, cores: float | None, is_large: bool, threads: int
) -> None:
    assert choose_threads(wish, cores, is_large=is_large) == threads

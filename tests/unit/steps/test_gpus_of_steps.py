"""GPUs for steps: what is asked for, what a step can use, what there is."""

from __future__ import annotations

import pytest

from packager.core.devices import (
    SPREAD_OVER,
    Gpus,
    GpuUse,
    GpuWish,
    choose_gpus,
    choose_threads,
    gpus_in,
)
from packager.core.units import GIB
from packager.steps.gpus import check_gpu_use, check_gpu_wish

ONE = GpuUse(most=1)
SEVERAL = GpuUse(most=SPREAD_OVER, all_bytes=60 * GIB)
A10G = Gpus(count=4, bytes=24 * GIB)


@pytest.mark.parametrize(
    ("wish", "use", "there", "given"),
    [
        pytest.param(None, ONE, Gpus(count=0), 0, id="no GPU is there"),
        pytest.param(None, ONE, A10G, 1, id="one is enough"),
        pytest.param("auto", ONE, A10G, 1, id="auto by name"),
        pytest.param("auto", SEVERAL, A10G, 3, id="as many as hold the model"),
        pytest.param("auto", SEVERAL, Gpus(count=2, bytes=24 * GIB), 2, id="no more than there"),
        pytest.param("auto", SEVERAL, Gpus(count=8, bytes=80 * GIB), 1, id="one large GPU"),
        pytest.param("auto", GpuUse(most=1, helps=False), A10G, 0, id="no help, no GPU"),
        pytest.param(1, GpuUse(most=1, helps=False), A10G, 1, id="asked for all the same"),
        pytest.param("auto", GpuUse(), A10G, 0, id="cannot use any"),
        pytest.param(2, GpuUse(), A10G, 0, id="cannot use what is requested"),
        pytest.param(0, SEVERAL, A10G, 0, id="none asked for"),
        pytest.param(4, ONE, A10G, 1, id="no more than it can use"),
        pytest.param("auto", GpuUse(most=1, each_bytes=22 * GIB), A10G, 0, id="too small"),
        pytest.param("auto", GpuUse(most=1, each_bytes=21 * GIB), A10G, 1, id="just large enough"),
        pytest.param("auto", SEVERAL, None, 0, id="nobody knows what is there"),
        pytest.param(2, SEVERAL, None, 2, id="a number, where nobody knows"),
    ],
)
def test_a_step_gets_what_helps_and_is_there(
    wish: GpuWish, use: GpuUse, there: Gpus | None, given: int
) -> None:
    assert choose_gpus(wish, use, there) == given


@pytest.mark.parametrize(
    ("wish", "there", "said"),
    [
        pytest.param(2, Gpus(count=1), "2 GPUs are requested, there is 1", id="two of one"),
        pytest.param(1, Gpus(count=0), "1 GPU is requested, there is none", id="one of none"),
    ],
)
def test_more_gpus_than_there_are_is_refused(wish: int, there: Gpus, said: str) -> None:
    (found,) = check_gpu_wish(wish, there)

    assert (found.severity, found.code, found.message) == ("error", "gpus-missing", said)
    assert "--gpus" in found.hint


@pytest.mark.parametrize(
    ("wish", "there"),
    [(None, Gpus(count=0)), ("auto", Gpus(count=0)), (0, Gpus(count=0)), (1, A10G), (9, None)],
    ids=["nothing asked", "auto", "none", "there", "not known"],
)
def test_what_is_there_or_may_be_is_not_refused(wish: GpuWish, there: Gpus | None) -> None:
    assert list(check_gpu_wish(wish, there)) == []


def test_gpus_that_would_idle_are_told() -> None:
    (found,) = check_gpu_use("quantize", 4, ONE, A10G)

    assert (found.severity, found.code) == ("note", "gpus-idle")
    assert found.message == "4 GPUs are requested; step 'quantize' uses 1"
    assert found.hint == "use `--gpus 1`"


@pytest.mark.parametrize(("wish", "severity"), [("auto", "note"), (1, "error")])
def test_a_gpu_too_small_for_a_layer_is_told_before_hours_of_work(
    wish: GpuWish, severity: str
) -> None:
    (found,) = check_gpu_use("quantize", wish, GpuUse(most=1, each_bytes=30 * GIB), A10G)

    assert (found.severity, found.code) == (severity, "gpu-too-small")
    assert "30.0 GiB on a GPU, each has 24.0 GiB" in found.message


def test_an_executor_that_says_nothing_of_gpus_is_not_one_without() -> None:
    assert gpus_in({}) is None
    assert gpus_in({"gpus": 0.0, "gpu_bytes": 0.0}) == Gpus(count=0)
    assert gpus_in({"gpus": 2.0, "gpu_bytes": 5e9}) == Gpus(count=2, bytes=5_000_000_000)


@pytest.mark.parametrize(
    ("wish", "cores", "is_large", "threads"),
    [
        pytest.param(None, 16.0, True, 16, id="all cores for a large model"),
        pytest.param(None, 16.0, False, 1, id="one for a small model"),
        pytest.param(None, None, True, 1, id="one where nobody counts cores"),
        pytest.param(4, 16.0, True, 4, id="as many as asked for"),
        pytest.param(4, None, False, 4, id="asked for all the same"),
    ],
)
def test_a_step_computes_with_the_cores_where_that_helps(
    wish: int | None, cores: float | None, is_large: bool, threads: int
) -> None:
    assert choose_threads(wish, cores, is_large=is_large) == threads

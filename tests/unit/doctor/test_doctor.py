"""What `packager doctor` says on machines that are not as they should be."""

from __future__ import annotations

import pytest

from packager.doctor.doctor import driver_checks


@pytest.mark.parametrize(
    ("driver", "status", "found", "fix"),
    [
        ("580.65.06", "ok", "580.65.06: runs CUDA 13 and CUDA 12", ""),
        ("595.10", "ok", "595.10: runs CUDA 13 and CUDA 12", ""),
        (
            "550.163.01",
            "missing",
            "550.163.01: runs CUDA 12; CUDA 13 needs 580",
            "install driver 580 or later, or take an older image with --container-version: "
            "vllm 0.19.1, lmi 24, tgi 3.3.6, sglang 0.5.10",
        ),
        (
            "525.60.13",
            "missing",
            "525.60.13: runs CUDA 12; CUDA 13 needs 580",
            "install driver 580 or later, or take an older image with --container-version: "
            "vllm 0.19.1, lmi 24, tgi 3.3.6, sglang 0.5.10",
        ),
        (
            "470.256.02",
            "missing",
            "470.256.02: CUDA 13 needs 580, CUDA 12 needs 525",
            "install driver 580 or later",
        ),
        ("[N/A]", "missing", "version '[N/A]' cannot be read", "look at it with `nvidia-smi`"),
    ],
    ids=["of-cuda-13", "newer", "of-cuda-12", "oldest-of-cuda-12", "of-cuda-11", "not-a-version"],
)
def test_a_driver_that_is_too_old_for_images_is_told_before_one_is_started(
    driver: str, status: str, found: str, fix: str
) -> None:
    (check,) = driver_checks(driver)

    assert (check.name, check.status, check.found, check.fix) == ("gpu driver", status, found, fix)


def test_a_machine_without_a_driver_has_no_line_about_it() -> None:
    assert driver_checks("") == []

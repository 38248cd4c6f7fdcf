"""What `packager doctor` says on machines that are not as they should be."""

from __future__ import annotations

from packager.cli.doctor.doctor import driver_checks
from tests.support.cases import cases


@cases("drivers")
def test_a_driver_that_is_too_old_for_images_is_told_before_one_is_started(
    driver: str, status: str, found: str, fix: str
) -> None:
    (check,) = driver_checks(driver)

    assert (check.name, check.status, check.found, check.fix) == ("gpu driver", status, found, fix)


def test_a_machine_without_a_driver_has_no_line_about_it() -> None:
    assert driver_checks("") == []

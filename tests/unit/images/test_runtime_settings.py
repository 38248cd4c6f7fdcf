"""Run-time settings of an image: ours over its base's."""

from __future__ import annotations

import pytest

from packager.core.image import HealthCheck, RuntimeConfig
from packager.images.oci import merge_runtime

BASE = {
    "Env": ["PATH=/usr/bin", "A=base"],
    "Entrypoint": ["/entry.sh"],
    "Cmd": ["serve", "--all"],
    "ExposedPorts": {"9000/tcp": {}},
    "User": "1000",
}
HEALTH = HealthCheck(
    path="/health",
    command=("ask", "/health"),
    interval_s=15,
    timeout_s=10,
    start_period_s=240,
    start_interval_s=3,
    retries=3,
)


def test_a_new_entry_point_takes_the_arguments_of_the_base_away() -> None:
    merged = merge_runtime(BASE, RuntimeConfig(entrypoint=("python3", "/launch.py")))

    assert merged["Entrypoint"] == ["python3", "/launch.py"]
    assert "Cmd" not in merged


def test_new_arguments_stay_with_the_entry_point_of_the_base() -> None:
    merged = merge_runtime(BASE, RuntimeConfig(cmd=("run",)))

    assert merged["Entrypoint"] == ["/entry.sh"]
    assert merged["Cmd"] == ["run"]


def test_our_variables_and_port_join_those_of_the_base() -> None:
    merged = merge_runtime(BASE, RuntimeConfig(env={"A": "ours", "B": "new"}, port=8080))

    assert merged["Env"] == ["PATH=/usr/bin", "A=ours", "B=new"]
    assert merged["ExposedPorts"] == {"9000/tcp": {}, "8080/tcp": {}}
    assert merged["User"] == "1000"


def test_a_health_check_is_written_as_docker_reads_it() -> None:
    merged = merge_runtime(BASE, RuntimeConfig(health=HEALTH))

    assert merged["Healthcheck"] == {
        "Test": ["CMD", "ask", "/health"],
        "Interval": 15_000_000_000,
        "Timeout": 10_000_000_000,
        "StartPeriod": 240_000_000_000,
        "StartInterval": 3_000_000_000,
        "Retries": 3,
    }


@pytest.mark.parametrize(
    ("ours", "kept"),
    [(RuntimeConfig(entrypoint=("python3",)), False), (RuntimeConfig(port=8080), True)],
    ids=["another-server", "the-bases-server"],
)
def test_the_bases_health_check_goes_with_its_server(ours: RuntimeConfig, kept: bool) -> None:
    base = {**BASE, "Healthcheck": {"Test": ["CMD", "curl", "localhost:9000"]}}

    assert ("Healthcheck" in merge_runtime(base, ours)) is kept

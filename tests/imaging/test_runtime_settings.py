"""Run-time settings of an image: ours over its base's."""

from __future__ import annotations

from packager.core.image import RuntimeConfig
from packager.imaging.oci import merge_runtime

BASE = {
    "Env": ["PATH=/usr/bin", "A=base"],
    "Entrypoint": ["/entry.sh"],
    "Cmd": ["serve", "--all"],
    "ExposedPorts": {"9000/tcp": {}},
    "User": "1000",
}


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

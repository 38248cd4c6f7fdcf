"""What a container needs so that its server captures, and which servers do not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from packager.cli.capture_options import TrafficCapture
from packager.cli.run.capturing import with_capture
from packager.cli.run.containers import ContainerSpec
from tests.support.cases import cases
from tests.support.refusals import raises_code

LAUNCH = ["python3", "/opt/packager/serving/launch.py"]


def engine_of(**config: Any) -> Any:
    made = {"Entrypoint": LAUNCH, "Labels": {"dev.packager.family": "vllm"}, **config}
    image = SimpleNamespace(attrs={"Config": made})
    return SimpleNamespace(images=SimpleNamespace(get=lambda _: image))


def wanted() -> ContainerSpec:
    return ContainerSpec(name="tiny", image="tiny:1", model="tiny", env={"A": "1"})


def capture(directory: Path) -> TrafficCapture:
    return TrafficCapture(directory=directory, share=0.5, redact_file=Path("/srv/redact"))


def test_a_server_of_ours_gets_the_middleware_and_the_modules(tmp_path: Path) -> None:
    found = with_capture(engine_of(Env=["PYTHONPATH=/own"]), wanted(), capture(tmp_path))

    assert found.arguments == ("--middleware", "capture_adapter.CaptureAdapter")
    assert found.env["PYTHONPATH"] == "/packager-capture-modules:/own"
    assert json.loads(found.env["PACKAGER_CAPTURE"])["name"] == "tiny/all"
    targets = [one.split(":")[1:] for one in found.binds]
    assert targets == [
        ["/packager-capture", "rw"],
        ["/packager-capture-modules/packager/core/capture", "ro"],
        ["/packager-capture-modules/capture_adapter.py", "ro"],
        ["/packager-redact", "ro"],
    ]
    assert all(Path(one.split(":")[0]).exists() for one in found.binds[:3])
    assert with_capture(engine_of(), wanted(), None) == wanted()


@cases("others")
def test_other_servers_are_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with raises_code("UsageError", match="takes no middleware"):
        with_capture(engine_of(**config), wanted(), capture(tmp_path))


def test_a_directory_that_the_server_cannot_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    user = str(tmp_path.stat().st_uid + 10001)
    with raises_code("UsageError", match=f"runs as user {user}"):
        with_capture(engine_of(User=user), wanted(), capture(tmp_path))

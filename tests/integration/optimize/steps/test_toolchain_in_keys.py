"""Keys name the versions that a tool really has, not those it was expected to have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.core.recipe import Step, StepOutcome, StepResult
from packager.core.request import BuildRequest
from packager.core.tool import Build, ToolFacts
from packager.optimize.keys.documents import QuantizedCheckpointKey
from packager.optimize.steps.dry_run import DryRunExecutor
from packager.optimize.steps.failures import StepTooLarge
from packager.pipeline import pipeline
from tests.support.commandline import TINY
from tests.support.tool_steps import OUTSIDE


class Surprising(DryRunExecutor):
    """An executor whose package index has another build than the tool declares."""

    def __init__(self) -> None:
        super().__init__(self._described)
        self.prepared = False

    def _described(self, name: str, build: Build) -> ToolFacts:
        version = "2.13.0+cu130" if self.prepared else "2.13.0+cpu"
        return ToolFacts(
            name=name,
            worker="a" * 64,
            requirements="b" * 64,
            packages={"torch": version},
            installed=self.prepared,
        )

    def prepare(self, name: str, build: Build = "cpu") -> None:
        self.prepared = True

    def admit(self, step: Step) -> None:
        assert not self.prepared, "asked when it is too late"

    def run(self, step: Step, into: Path) -> StepResult:
        raise AssertionError("nothing is run here")


class TooSmall(Surprising):
    """An executor without the disk space for any step."""

    def admit(self, step: Step) -> None:
        raise StepTooLarge(f"step {step.name!r} needs about 9.0 GB of disk space, 1.0 GB are free")


def test_a_step_too_large_is_refused_before_its_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(OUTSIDE))
    request = BuildRequest(model=str(TINY), instance="local", quantize="demo-copy", base="scratch")
    small = TooSmall()
    tools = replace(services_for(Settings()), executor=small)

    with pytest.raises(StepTooLarge, match=r"step 'quantize' needs about 9\.0 GB"):
        pipeline.assemble(request, tools, lambda _: StepOutcome(files=()))

    assert not small.prepared


def test_a_key_has_the_installed_version_not_the_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(OUTSIDE))
    request = BuildRequest(model=str(TINY), instance="local", quantize="demo-copy", base="scratch")
    tools = replace(services_for(Settings()), executor=Surprising())
    ran: list[Step] = []

    def run_step(step: Step) -> StepOutcome:
        ran.append(step)
        return StepOutcome(files=step.inputs["model"].files)

    pipeline.assemble(request, tools, run_step)

    [step] = ran
    assert isinstance(step.key, QuantizedCheckpointKey)
    versions = {package.name: package.version for package in step.key.toolchain.packages}
    assert versions == {"packager-tool": "demo-tool", "torch": "2.13.0+cu130"}

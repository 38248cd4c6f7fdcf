"""Checking a text as a file of a given name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from packager.addons.check.reading import read_document
from packager.addons.check.targets import parse_target
from packager.addons.check.values import CheckReport, Kind
from packager.addons.check.verdicts import judge
from packager.engines.rules import NO_FACTS, Facts

Check = Callable[..., CheckReport]


@pytest.fixture
def check() -> Check:
    """Return a function that checks texts by their files' names."""

    def run(
        files: dict[str, str],
        *targets: str,
        kind: Kind | None = None,
        facts: Facts = NO_FACTS,
        on_sagemaker: bool = False,
    ) -> CheckReport:
        documents = [read_document(name, text.encode(), kind) for name, text in files.items()]
        asked = tuple(parse_target(target) for target in targets)
        return judge(documents, asked=asked, facts=facts, on_sagemaker=on_sagemaker)

    return run


def lines(report: CheckReport, *severities: str) -> list[str]:
    """Write findings as FILE:LINE:COLUMN code."""
    wanted = severities or ("error", "warning")
    return [
        f"{one.place.file}:{one.place.line}:{one.place.column} {one.finding.code}"
        for one in report.remarks
        if one.finding.severity in wanted
    ]


def messages(report: CheckReport) -> str:
    """Write every finding with its hint."""
    return "\n".join(f"{one.finding.message} | {one.finding.hint}" for one in report.remarks)

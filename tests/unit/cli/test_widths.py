"""What may be copied stays whole at every width of a terminal; results are one line."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.cli.terminal import print_report, print_value
from packager.core.reports.report import Command, Lines, Pair, Pairs, Report, Section, Words
from packager.core.reports.text import fitted_lines, page_of, report_lines, report_text
from packager.estimate.performance.startup import image_of_plan, predict_startup
from packager.images.report import inspect_report
from packager.pipeline.report_page import plan_report
from packager.pipeline.report_plan import PlanPage
from tests.support.bench_reports import REPORTS as BENCHMARKS
from tests.support.report_values import bench_lines, outlook_of, plan_on
from tests.support.screens import Screen
from tests.support.stored_images import image

WIDTHS = range(40, 201)
REFERENCE = "registry.example.com:5000/team/llama-3-8b-instruct-awq:2026-11-30"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
PATH = "/var/lib/packager/builds/0f3c/model-00001-of-00004.safetensors"
COMMAND = (
    "packager build --model 'a model' --instance ml.g5.xlarge --quantize awq "
    f"--output {REFERENCE} --record /tmp/a-record.json"
)
# What is copied: names with a slash, digests, files.
COPIED = re.compile(r"[\w.:@/-]*(?:/|sha256:)[\w.:@/-]+")


def plan() -> list[str]:
    found = plan_on("ml.g5.12xlarge", family="lmi")
    startup = predict_startup(image_of_plan(found))
    return report_lines(
        plan_report(PlanPage(plan=found, outlook=outlook_of(found), startup=startup))
    )


def made_up() -> list[str]:
    rows = (Pair("image", f"{REFERENCE}@{DIGEST}"), Pair("record", PATH))
    told = Words(f"the layers of {REFERENCE}@{DIGEST} are in '/a directory/of mine', not in {PATH}")
    lines = Lines((f"next: {COMMAND}", COMMAND))
    parts = (
        Pairs(rows),
        told,
        Pairs(rows, is_listed=True),
        lines,
        Command(COMMAND, "is not shown"),
    )
    return report_lines(Report(title="t", sections=(Section(parts=parts),)))


REPORTS: dict[str, Callable[[], list[str]]] = {
    "plan": plan,
    "benchmark": lambda: bench_lines(BENCHMARKS["quantized"]()),
    "benchmark of long names": lambda: bench_lines(BENCHMARKS["long names"]()),
    "inspect": lambda: report_text(inspect_report(image())).splitlines(),
    "made up": made_up,
}


def commands_in(lines: list[str]) -> Iterator[list[str]]:
    """Yield the words of commands that stand alone, as a shell reads them."""
    text = re.sub(r" \\\n\s*", " ", "\n".join(lines))
    for line in text.splitlines():
        if line.strip().startswith("packager "):
            yield shlex.split(line)


@pytest.mark.parametrize("name", REPORTS)
def test_no_width_breaks_a_reference_a_digest_a_path_or_a_command(name: str) -> None:
    whole = REPORTS[name]()
    copied = set(COPIED.findall("\n".join(whole)))
    assert copied

    for width in WIDTHS:
        with page_of(width):
            lines = fitted_lines(REPORTS[name](), width)
        assert (width, copied - set(COPIED.findall("\n".join(lines)))) == (width, set())
        assert list(commands_in(lines)) == list(commands_in(whole))


NAME = st.text("abcdefgh0123456789-._", min_size=1, max_size=40).filter(
    lambda one: one[0].isalnum()
)
REFERENCES = st.builds("{}/{}/{}:{}".format, NAME, NAME, NAME, NAME) | st.builds(
    "{}/{}@{}".format, NAME, NAME, st.just(DIGEST)
)


@settings(max_examples=100, deadline=None)
@given(
    references=st.lists(REFERENCES, min_size=1, max_size=4),
    label=st.sampled_from(("", "image", "shared with")),
    width=st.sampled_from(WIDTHS),
)
def test_a_reference_is_never_broken(references: list[str], label: str, width: int) -> None:
    text = " and then ".join(references)
    report = Report(title="t", sections=(Section(parts=(Words(text, label=label),)),))
    with page_of(width):
        words = " ".join(fitted_lines(report_lines(report), width)).split()

    assert [word for word in words if "/" in word] == references


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_a_result_is_one_line_whatever_the_width(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(columns)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", screen.stream)

    print_value(f"{REFERENCE}@{DIGEST}")
    print_value("a name\nof two lines with a lot of words, more than a line of any terminal has")

    assert screen.raw.splitlines() == [
        f"{REFERENCE}@{DIGEST}",
        "a name\\nof two lines with a lot of words, more than a line of any terminal has",
    ]


def test_a_report_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(40)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", screen.stream)

    print_report(Report(title="t", sections=(Section(parts=(Words("word " * 30),)),)))

    assert max(map(len, screen.raw.splitlines())) <= 40

"""What people read of a trained head."""

from __future__ import annotations

from pathlib import Path

from packager.core.recipe import StepOutcome
from packager.core.reports.text import report_lines
from packager.core.samples import Sample, Samples
from packager.core.training import HeadTraining, Trained, TrainingReport, TrainingTexts
from packager.optimize.drafts.train.report import training_report
from tests.unit.core.test_training import FIGURES

TEXTS = Samples(source="chats.jsonl", samples=(Sample(text="one"),))
DONE = Trained(
    asked=HeadTraining(method="medusa", speculative_tokens=2, layers=1),
    report=TrainingReport.model_validate(FIGURES),
    outcomes=(StepOutcome(files=()),),
    weight_bytes=3_500_000,
)


def test_the_next_command_is_one_that_a_shell_takes() -> None:
    texts = TrainingTexts(train=TEXTS, held_out=TEXTS)

    lines = report_lines(training_report(DONE, texts, "./my model", Path("a head")))

    assert lines[-1].endswith("--model './my model' --draft 'medusa:./a head' …")

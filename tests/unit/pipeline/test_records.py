"""Records that measurements are put into: found by any digest, and read back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packager.cli.wiring.outputs import record_places
from packager.core.quality import QualityReport
from packager.core.record import BuildRecord, RecordedBase, RecordedStep
from packager.core.speculation import Acceptance
from packager.images.layout.sink import LayoutSink
from packager.images.registry.sink import RegistrySink
from packager.images.target import parse_layout_target, parse_registry_target
from packager.pipeline.records import (
    find_quality,
    find_record,
    load_record,
    put_speculation,
    save_record,
)
from tests.support.lineage_records import build_record
from tests.support.report_values import comparison, quality_report, speculation_report

MANIFEST, CONFIG = "sha256:" + 64 * "a", "sha256:" + 64 * "c"
OTHER = "sha256:" + 64 * "e"


def record(**changes: Any) -> BuildRecord:
    base = RecordedBase(reference="base", digest=OTHER, platform="linux/amd64")
    given = {"base": base, "digest": MANIFEST, "config_digest": CONFIG, **changes}
    return build_record(**given)


def place_of(state: Path) -> Path:
    return state / "records" / f"{64 * 'a'}.json"


def test_a_record_is_found_by_the_manifest_or_the_configuration(tmp_path: Path) -> None:
    """Docker's id of an image is the one or the other, as it stores images."""
    save_record(record(), state_dir=tmp_path, copy_to=None)

    assert find_record(tmp_path, [MANIFEST]) == place_of(tmp_path)
    assert find_record(tmp_path, ["sha256:none", CONFIG]) == place_of(tmp_path)
    assert find_record(tmp_path, [OTHER]) is None  # it is in the record, as the base's
    assert find_record(tmp_path / "nowhere", [CONFIG]) is None


def test_a_measured_quality_is_found_by_the_key_of_the_step(tmp_path: Path) -> None:
    step = RecordedStep(name="quantize", tool="llmcompressor", key=64 * "1")
    save_record(record(steps=(step,), quality=quality_report()), state_dir=tmp_path, copy_to=None)
    save_record(record(steps=(step,), digest=OTHER), state_dir=tmp_path, copy_to=None)

    assert find_quality(tmp_path, {64 * "1"}) == quality_report()
    assert find_quality(tmp_path, {64 * "2"}) is None
    assert find_quality(tmp_path, {""}) is None
    assert find_quality(tmp_path / "nowhere", {64 * "1"}) is None


def test_a_layout_has_the_record_beside_it(tmp_path: Path) -> None:
    sinks = [
        LayoutSink(parse_layout_target(f"oci:{tmp_path / 'out'}:7")),
        RegistrySink(parse_registry_target("r.example/model:1")),
    ]

    save_record(record(), state_dir=tmp_path, copy_to=None, beside=record_places(sinks))

    assert load_record(tmp_path / "out.record.json") == record()


def test_a_record_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    save_record(record(), state_dir=tmp_path, copy_to=None)
    (tmp_path / "records" / "0.json").write_text(f'{{"digest": "{MANIFEST}"')

    assert find_record(tmp_path, [MANIFEST]) == place_of(tmp_path)


def test_records_of_before_the_measurement_are_read(tmp_path: Path) -> None:
    document = record().model_dump_json(exclude={"speculation", "config_digest"}, exclude_none=True)
    (tmp_path / "old.json").write_text(document)

    found = load_record(tmp_path / "old.json")

    assert (found.speculation, found.config_digest) == (None, "")


def test_figures_in_a_record_are_read_back_as_they_were(tmp_path: Path) -> None:
    """Those that are no number, too: a record once left them out and could not be read again."""
    report = speculation_report(
        acceptance=Acceptance(source="chunks", length=1.2, rate=None), sameness=None
    )
    quality = QualityReport(quality=comparison(answer_flips=None), noise=None, generation=None)
    save_record(record(quality=quality), state_dir=tmp_path, copy_to=None)

    put_speculation(place_of(tmp_path), report)

    assert load_record(place_of(tmp_path)) == record(quality=quality, speculation=report)


def test_building_the_same_image_again_keeps_what_was_measured_of_it(tmp_path: Path) -> None:
    save_record(record(), state_dir=tmp_path, copy_to=None)
    put_speculation(place_of(tmp_path), speculation_report())

    save_record(record(seconds=2.0), state_dir=tmp_path, copy_to=tmp_path / "copy.json")

    assert load_record(place_of(tmp_path)) == record(seconds=2.0, speculation=speculation_report())
    assert load_record(tmp_path / "copy.json").speculation == speculation_report()

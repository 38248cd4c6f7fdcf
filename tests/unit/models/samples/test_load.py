"""Samples come from files, directories, hubs and the shipped set; every row is accounted for."""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path

import pytest

from packager.core.errors import NotFound, UsageError
from packager.core.samples import Message, Sample, choose_samples
from packager.models.samples.load import BrokenSamples, load_samples
from tests.support.cases import Case, cases, read_tables

ERRORS = {one.__name__: one for one in (BrokenSamples, NotFound, UsageError)}


def write(path: Path, *lines: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def test_json_lines_in_several_formats(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", {"text": "one"}, "", {"prompt": "two", "completion": "!"})

    found = load_samples(str(data))

    assert found.samples == (Sample(text="one"), Sample(prompt="two", completion="!"))
    assert found.formats == {"completions": 1, "text": 1}
    assert found.skipped_count == 0


@cases("json_files")
def test_a_json_file(tmp_path: Path, content: str) -> None:
    data = tmp_path / "a.json"
    data.write_text(content, encoding="utf-8")

    assert [sample.text for sample in load_samples(str(data)).samples] == ["one", "two"]


def test_a_text_becomes_pieces_of_whole_paragraphs(tmp_path: Path) -> None:
    data = tmp_path / "a.txt"
    data.write_text("\n\n".join(letter * 600 for letter in "abc"), encoding="utf-8")

    first, second = load_samples(str(data)).samples

    assert first.text == "a" * 600 + "\n\n" + "b" * 600
    assert second.text == "c" * 600


def test_a_parquet_table(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    rows = [
        {"messages": [{"role": "user", "content": "Hello"}], "text": None},
        {"messages": None, "text": "one"},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")

    found = load_samples(str(tmp_path / "a.parquet"))

    hello = Message(role="user", content="Hello")
    assert found.samples == (Sample(messages=(hello,)), Sample(text="one"))


def test_a_directory_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    write(tmp_path / "2.jsonl", {"text": "two"})
    write(tmp_path / "1" / "capture.jsonl", {"text": "one"})
    write(tmp_path / "notes.xlsx", "not data")

    assert [sample.text for sample in load_samples(str(tmp_path)).samples] == ["one", "two"]


def test_repeated_samples_count_once(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", {"text": "one"}, {"text": "one", "id": 7})

    found = load_samples(str(data))

    assert (len(found.samples), found.repeated) == (1, 1)


def test_broken_lines_are_counted_and_shown(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", {"text": "one"}, "{", {"x": 1}, '{"text": 1, "text": "2"}')

    found = load_samples(str(data))

    assert len(found.samples) == 1
    assert found.skipped_count == 3
    assert [skipped.place for skipped in found.skipped] == read_tables(__file__)["skipped"]
    assert "not JSON" in found.skipped[0].reason
    assert "stands twice" in found.skipped[2].reason


def test_names_of_files_are_one_line_that_no_terminal_obeys(tmp_path: Path) -> None:
    file = tmp_path / "a\x1b[31m\nb.jsonl"
    file.write_text('not JSON\n{"text": "one"}\n')

    for reference in (file, tmp_path):
        assert load_samples(str(reference)).skipped[0].place == r"a\x1b[31m\nb.jsonl, line 1"


def test_bytes_that_are_no_text_are_a_broken_line(tmp_path: Path) -> None:
    data = tmp_path / "a.jsonl"
    data.write_bytes(b'{"text": "one"}\n{"text": "\xff"}\n')

    assert "not UTF-8" in load_samples(str(data)).skipped[0].reason


@cases("refused")
def test_data_that_gives_no_samples_is_refused(tmp_path: Path, case: Case) -> None:
    reference = case.get("reference") or str(tmp_path / case["name"])
    if "name" in case:
        (tmp_path / case["name"]).write_text(case["content"])

    with pytest.raises(ERRORS[case["error"]]) as refused:
        load_samples(reference, broken=case.get("broken", "skip"))

    assert case["message"] in refused.value.message


def test_a_dataset_of_a_hub_is_pinned(tmp_path: Path) -> None:
    asked: list[tuple[str, str, str | None]] = []

    def download(name: str, revision: str, file: str | None) -> Path:
        asked.append((name, revision, file))
        return write(tmp_path / "data" / "a.jsonl", {"text": "one"}).parent

    assert len(load_samples("hf://datasets/org/name@abc123", download=download).samples) == 1
    assert asked == [("org/name", "abc123", None)]


def test_the_shipped_set_needs_nothing() -> None:
    found = load_samples("default")

    assert found.formats["chat"] == 192
    assert found.skipped_count == 0
    assert len(found.samples) >= 256


def test_a_choice_does_not_depend_on_the_order_or_on_other_samples(tmp_path: Path) -> None:
    rows = [{"text": f"number {number}"} for number in range(50)]
    there = load_samples(str(write(tmp_path / "a.jsonl", *rows)))
    back = load_samples(str(write(tmp_path / "b.jsonl", *reversed(rows))))

    chosen = choose_samples(there, 8, seed=3)

    assert chosen.samples == choose_samples(back, 8, seed=3).samples
    assert chosen.digest == choose_samples(back, 8, seed=3).digest


def test_another_seed_or_sample_is_another_digest(tmp_path: Path) -> None:
    rows = [{"text": f"number {number}"} for number in range(50)]
    found = load_samples(str(write(tmp_path / "a.jsonl", *rows)))
    other = load_samples(str(write(tmp_path / "b.jsonl", *rows[:-1], {"text": "another"})))

    assert choose_samples(found, 8, seed=3).digest != choose_samples(found, 8, seed=4).digest
    assert choose_samples(found, 50, seed=3).digest != choose_samples(other, 50, seed=3).digest


def test_workers_read_one_object_a_line() -> None:
    chat = Sample(messages=(Message(role="user", content="Grüße"),))

    assert (
        json.dumps(chat.row()) == '{"messages": [{"role": "user", "content": "Gr\\u00fc\\u00dfe"}]}'
    )


def test_the_shipped_texts_are_those_that_earlier_results_were_calibrated_with() -> None:
    """Another byte is another key: everything that was calibrated with them would miss."""
    shipped = resources.files("packager.catalog") / "data" / "samples.jsonl"

    digest = hashlib.sha256(shipped.read_bytes()).hexdigest()
    assert digest == "f3de5602f251899611e2e4c841e26ebb7dc294b6221fe00fc6067db9741f89b7"

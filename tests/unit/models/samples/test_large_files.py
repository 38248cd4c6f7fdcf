"""Files of samples may hold more values than other documents: texts are full of commas."""

from __future__ import annotations

import json
from pathlib import Path

from packager.models.samples.load import load_samples


def test_a_list_of_rows_with_a_million_commas_is_read(tmp_path: Path) -> None:
    place = tmp_path / "rows.json"
    place.write_text(json.dumps([{"text": f"{number}" + "," * 600_000} for number in range(2)]))

    assert len(load_samples(str(place)).samples) == 2

"""Writing images through the tee into layouts: what is read, written and left behind."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.made_images import layout_sink
from tests.unit.images.test_write_image import Bench, image_of
from tests.unit.images.test_write_image import bench as bench
from tests.unit.images.test_write_image import shard as shard


def test_a_layout_removed_while_waiting_for_it_is_made_again(
    bench: Bench, shard: Path, tmp_path: Path
) -> None:
    first = layout_sink(tmp_path / "out")
    first.prepare(image_of(shard))
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(
            bench.write, image_of(shard), layout_sink(f"{tmp_path / 'out'}:second")
        )
        time.sleep(0.2)
        first.abandon()
        written = second.result(timeout=120)

    index = json.loads((tmp_path / "out/index.json").read_bytes())
    assert [entry["digest"] for entry in index["manifests"]] == [written.image.digest]

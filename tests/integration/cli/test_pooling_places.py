"""A model of vectors or scores from a hub or a bucket is the image that its directory makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.serving import MODEL_DIR
from tests.support.doubles.s3 import Bucket
from tests.support.pooling_models import load, write_model
from tests.support.remote_models import Remote
from tests.support.remote_models import bucket as bucket
from tests.support.remote_models import environment as environment
from tests.support.remote_models import hub as hub
from tests.support.remote_models import remote as remote
from tests.support.remote_models import server as server
from tests.support.written_layouts import WrittenLayout, files_in

WEIGHTS = MODEL_DIR[1:]


@pytest.fixture(params=["qwen3-embed", "qwen3-judge"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_model(load(request.param), tmp_path / "upstream")


def test_every_place_gives_the_same_files(
    remote: Remote, bucket: Bucket, model: Path, tmp_path: Path
) -> None:
    for path in model.glob("*/*"):
        bucket.put(f"llama/{path.relative_to(model)}", path.read_bytes())
    built = []
    for at, place in enumerate((str(model), "hf://acme/tiny", f"{bucket.url}/llama")):
        remote.build(place, f"oci:{tmp_path}/{at}")
        files = files_in(WrittenLayout(tmp_path / str(at)).layers)
        built.append({path: held for path, held in files.items() if path.startswith(WEIGHTS)})

    assert built[0] == built[1] == built[2]
    assert f"{WEIGHTS}/config.json" in built[0]

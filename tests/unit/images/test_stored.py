"""Reading documents that may be anyone's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.core.errors import ProtocolFailed
from packager.core.reports.text import report_text
from packager.images.compare import compare
from packager.images.oci import sha256
from packager.images.report import diff_report, inspect_document, inspect_report
from packager.images.stored import parse_stored
from tests.support.stored_images import image

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
FIELDS = ("config", "rootfs", "history", "os", "architecture", "created")
RUNTIME = ("Env", "Entrypoint", "Cmd", "Labels", "User")


@given(
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON),
    runtime=st.dictionaries(st.sampled_from(RUNTIME), JSON),
    annotations=JSON,
)
def test_whatever_a_configuration_holds_the_image_can_be_shown(
    fields: dict[str, object], runtime: dict[str, object], annotations: object
) -> None:
    config = json.dumps({"rootfs": {}, "config": runtime, **fields}).encode()
    manifest = {
        "schemaVersion": 2,
        "config": {"mediaType": "a/b", "digest": sha256(config), "size": len(config)},
        "layers": [{"mediaType": "a/b", "digest": "sha256:" + "a" * 64, "size": 1}],
        "annotations": annotations,
    }
    manifest["layers"][0]["annotations"] = annotations  # type: ignore[index]

    found = parse_stored("x", json.dumps(manifest).encode(), config)

    assert report_text(inspect_report(found, [found]))
    assert json.dumps(inspect_document(found))
    assert report_text(diff_report(compare(image(), found)))


def test_a_manifest_that_is_also_an_index_is_refused() -> None:
    sealed = image().sealed
    both = json.dumps({**json.loads(sealed.manifest), "manifests": []}).encode()

    with pytest.raises(ProtocolFailed, match="no image manifest"):
        parse_stored("x", both, sealed.config)


def test_another_configuration_than_the_manifests_is_refused() -> None:
    with pytest.raises(ProtocolFailed, match="another than it says"):
        parse_stored("x", image().sealed.manifest, b"{}")


def test_names_cannot_steer_the_terminal() -> None:
    record = {"model": {"source": "local", "name": "a\x1b[2Jb"}}

    assert "\x1b" not in report_text(inspect_report(image(record=record)))

from __future__ import annotations

from packager.core.image import Blob, FileRange, Layer
from packager.core.registry import UNKNOWN_REGISTRY, RegistryTraits
from packager.core.units import GIB, MIB
from packager.images.limits import check_limits
from tests.support.made_images import image_with

HOST = "r.example"
SMALL = RegistryTraits(name="Small", layer_bytes=10 * MIB, layers=3, upload_s=600)


def layer(size: int, *, mount_from: str = "", label: str = "model.safetensors") -> Layer:
    blob = Blob((FileRange(path="/weights", offset=0, length=size),))
    return Layer(role="weights", blob=blob, mount_from=mount_from, created_by=label)


def found(known: RegistryTraits, *layers: Layer) -> list[tuple[str, str]]:
    return [(one.severity, one.code) for one in check_limits(image_with(*layers), HOST, known)]


def test_what_fits_is_not_mentioned() -> None:
    assert found(SMALL, layer(10 * MIB), layer(1)) == []


def test_nothing_is_refused_where_nothing_is_known() -> None:
    assert found(UNKNOWN_REGISTRY, layer(500 * GIB)) == []


def test_everything_that_does_not_fit_is_said_at_once() -> None:
    assert found(SMALL, *[layer(11 * MIB)] * 4) == [
        ("error", "registry-layer-size"),
        ("error", "registry-layers"),
    ]


def test_a_layer_that_is_in_the_registry_may_have_any_size() -> None:
    assert found(SMALL, layer(11 * MIB, mount_from=f"{HOST}/base")) == []
    assert found(SMALL, layer(11 * MIB, mount_from="elsewhere.example/base")) != []


def test_the_largest_layer_is_named_with_its_limit() -> None:
    image = image_with(layer(11 * MIB), layer(12 * MIB, label="draft"))

    (finding,) = check_limits(image, HOST, SMALL)

    assert finding.message == (
        "a layer has 12.6 MB (draft), Small takes 10.5 MB, and 1 more are too large"
    )
    assert "--max-layer-size" in finding.hint


def test_a_manifest_that_no_registry_need_take_is_refused() -> None:
    annotated = Layer(role="config", blob=Blob(()), annotations={"x": "y" * (4 * MIB)})

    assert found(UNKNOWN_REGISTRY, annotated) == [("error", "registry-manifest-size")]


def test_an_upload_that_would_be_cut_off_on_a_slow_line_is_a_warning() -> None:
    slow = RegistryTraits(name="Slow", upload_s=600)

    assert found(slow, layer(7_400_000_000)) == []
    assert found(slow, layer(7_600_000_000)) == [("warning", "registry-upload-time")]
    assert found(slow, *[layer(2_000_000_000)] * 4) == [("warning", "registry-upload-time")]

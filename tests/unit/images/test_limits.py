from __future__ import annotations

from packager.core.image import Blob, FileRange, Layer
from packager.core.registry import UNKNOWN_REGISTRY, RegistryTraits
from packager.core.units import MIB
from packager.images.limits import check_limits
from tests.support.cases import cases
from tests.support.made_images import image_with

HOST = "r.example"
SMALL = RegistryTraits(name="Small", layer_bytes=10 * MIB, layers=3, upload_s=600)
SLOW = RegistryTraits(name="Slow", upload_s=600)
TRAITS = {"small": SMALL, "slow": SLOW, "unknown": UNKNOWN_REGISTRY}


def layer(size: int, *, mount_from: str = "", label: str = "model.safetensors") -> Layer:
    blob = Blob((FileRange(path="/weights", offset=0, length=size),))
    return Layer(role="weights", blob=blob, mount_from=mount_from, created_by=label)


def found(known: RegistryTraits, *layers: Layer) -> list[tuple[str, str]]:
    return [(one.severity, one.code) for one in check_limits(image_with(*layers), HOST, known)]


@cases("limits", mount_from="", says=[])
def test_layers_are_held_against_the_limits_of_a_registry(
    traits: str, sizes: list[int], mount_from: str, says: list[tuple[str, str]]
) -> None:
    layers = (layer(size, mount_from=mount_from) for size in sizes)

    assert found(TRAITS[traits], *layers) == says


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

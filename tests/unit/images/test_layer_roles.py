"""What the descriptors of our own layers say about them."""

from __future__ import annotations

from packager.core.image import FileRange
from packager.core.model import ModelFile
from packager.core.serving import RenderedFile
from packager.images.layer_plan import config_layer, draft_layers, model_layers


def file(path: str, size: int) -> ModelFile:
    content = FileRange(path=f"/m/{path}", offset=0, length=size)
    role = "weights" if path.endswith(".safetensors") else "config"
    return ModelFile(path=path, content=content, role=role)  # type: ignore[arg-type]


def test_every_layer_of_ours_names_its_role() -> None:
    files = [file("a.safetensors", 2_000_000), file("config.json", 10)]
    layers = (
        *model_layers(files, base_layers=3, directory="/opt/packager/model"),
        *draft_layers(files[:1], directory="/opt/packager/draft"),
        config_layer([RenderedFile(path="/etc/serving", data=b"x")]),
    )

    roles = [layer.annotations["dev.packager.role"] for layer in layers]

    assert roles == ["weights", "model", "draft", "config"]

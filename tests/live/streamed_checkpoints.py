"""Checkpoints as the stream describes them, written into directories to be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from packager.core.image import Blob, Segment
from packager.core.model import ModelFile, WeightsHeader
from packager.engines.vllm.family import VllmFamily
from packager.images.blobs import BlobReader
from packager.models.safetensors import read_weights_header
from packager.optimize.quantize.stream.quantizer import StreamQuantizer
from packager.optimize.quantize.stream.widened import block_of, widened
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.live.planned_cases import planned_facts

CARRIED = ("config.json", "model.safetensors.index.json")


def streamed(checkpoint: Path, asked: str, instance: str = "ml.p5.48xlarge") -> dict[str, bytes]:
    """Return the files that the stream writes, by name; raises `PlanRejected`.

    What is asked may be followed by values of `--quantize-layer`.
    """
    method, *layers = asked.split(" ")
    facts = planned_facts(checkpoint, method, instance, layers=tuple(layers) or None)
    quantizer, reader = StreamQuantizer(), BlobReader()

    def read_header(file: ModelFile) -> WeightsHeader:
        return read_weights_header(file, reader.read)

    if block_of(facts.model.config) is not None:
        facts = replace(facts, model=widened(facts.model, read_header))
    plan = make_plan(facts, PlannerServices(family=VllmFamily(), quantizer=quantizer))
    files = quantizer.describe(facts, plan, read_header)
    return {
        file.path: reader.read(_blob(file.content))
        for file in files
        if file.role == "weights" or file.path in CARRIED
    }


def _blob(content: Segment | Blob) -> Blob:
    return content if isinstance(content, Blob) else Blob((content,))

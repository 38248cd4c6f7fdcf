"""Plug-in registry: tables of names and implementations, imported when used.

One table a kind.  Adding an implementation is a file, a factory and a row here, or a package
with an entry point in the table's group; command-line choices, `packager list` and the
documentation read these tables.  A factory states the port that it returns, so mypy refuses an
implementation that departs from it, and imports when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from packager.cli.plugins.executors import EXECUTORS as EXECUTORS
from packager.cli.plugins.rows import (
    BrokenPlugin,
    Row,
    SinkRow,
    SinkTraits,
    Table,
    entry_points_of,
    load_entry_point,
    origin_of,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from packager.cli.plugins.contexts import BaseContext, ReadContext, SinkContext, SourceContext
    from packager.cli.serving.routes import Route
    from packager.core.image import Platform
    from packager.core.ports import (
        BaseSource,
        Compiler,
        ContainerFamily,
        Deployer,
        ImageSink,
        ModelSource,
        Quantizer,
        TreeReader,
    )
    from packager.core.record import BuildRecord
    from packager.core.references import ImageTarget
    from packager.core.reports.report import Section
    from packager.images.digest_index import DigestIndex
    from packager.images.opened import OpenImage

SourceRow: TypeAlias = "Row[[SourceContext], ModelSource]"
FamilyRow: TypeAlias = "Row[[], ContainerFamily]"
BaseRow: TypeAlias = "Row[[BaseContext], BaseSource]"
ImageRow: TypeAlias = "Row[[ImageTarget, Platform, ReadContext], OpenImage]"
QuantizerRow: TypeAlias = "Row[[], Quantizer]"
CompilerRow: TypeAlias = "Row[[], Compiler]"
TreeRow: TypeAlias = "Row[[], TreeReader]"
DeployerRow: TypeAlias = "Row[[], Deployer[Any]]"
RouteRow: TypeAlias = "Row[[str, Mapping[str, str]], Route]"
SectionRow: TypeAlias = "Row[[BuildRecord], Section | None]"


def _local_source(context: SourceContext) -> ModelSource:
    from packager.models.local import LocalSource

    return LocalSource(
        is_draft=context.is_draft,
        is_adapter=context.is_adapter,
        trust_roots=context.trust_roots,
    )


def _hub_source(context: SourceContext) -> ModelSource:
    from packager.models.hub import HubSource

    return HubSource(
        headers_only=context.headers_only,
        is_draft=context.is_draft,
        is_adapter=context.is_adapter,
        on_bytes=context.on_bytes,
    )


def _hub_stream_source(context: SourceContext) -> ModelSource:
    from packager.models.hub_stream import HubStreamSource

    return HubStreamSource(
        headers_only=context.headers_only,
        is_draft=context.is_draft,
        is_adapter=context.is_adapter,
    )


def _s3_source(context: SourceContext) -> ModelSource:
    from packager.models.s3 import S3Source

    return S3Source(
        headers_only=context.headers_only,
        is_draft=context.is_draft,
        is_adapter=context.is_adapter,
    )


def _vllm() -> ContainerFamily:
    from packager.engines.vllm.family import VllmFamily

    return VllmFamily()


def _lmi() -> ContainerFamily:
    from packager.engines.lmi.family import LmiFamily

    return LmiFamily()


def _tgi() -> ContainerFamily:
    from packager.engines.tgi.family import TgiFamily

    return TgiFamily()


def _sglang() -> ContainerFamily:
    from packager.engines.sglang.family import SglangFamily

    return SglangFamily()


def _neuron() -> ContainerFamily:
    from packager.engines.neuron.family import NeuronFamily

    return NeuronFamily()


def _registry_base(context: BaseContext) -> BaseSource:
    from packager.images.registry.base import RegistryBase

    return RegistryBase(clients=context.clients())


def _layout_base(context: BaseContext) -> BaseSource:  # noqa: ARG001
    from packager.images.layout.base import LayoutBase

    return LayoutBase()


def _docker_base(context: BaseContext) -> BaseSource:  # noqa: ARG001
    from packager.images.daemon.base import DockerBase

    return DockerBase()


def _embedded_base(context: BaseContext) -> BaseSource:  # noqa: ARG001
    from packager.images.bases.embedded import EmbeddedBase

    return EmbeddedBase()


def _scratch_base(context: BaseContext) -> BaseSource:  # noqa: ARG001
    from packager.images.bases.scratch import ScratchBase

    return ScratchBase()


def _layout_image(target: ImageTarget, platform: Platform, context: ReadContext) -> OpenImage:  # noqa: ARG001
    from packager.images.opened import open_layout
    from packager.images.target import layout_of

    return open_layout(layout_of(target), platform)


def _docker_image(target: ImageTarget, platform: Platform, context: ReadContext) -> OpenImage:  # noqa: ARG001
    from packager.images.opened import open_engine_image

    return open_engine_image(target, platform)


def _registry_image(target: ImageTarget, platform: Platform, context: ReadContext) -> OpenImage:
    from packager.images.opened import open_registry_image
    from packager.images.target import registry_of

    return open_registry_image(registry_of(target), platform, context.clients(), context.claim_key)


def _layout_sink(target: ImageTarget, context: SinkContext) -> ImageSink:
    from packager.images.layout.sink import LayoutSink
    from packager.images.target import layout_of

    layouts = tuple(one for one in context.beside if isinstance(one, LayoutSink))
    return LayoutSink(layout_of(target), sparse_base=context.sparse_base, beside=layouts)


def _registry_sink(target: ImageTarget, context: SinkContext) -> ImageSink:
    from packager.images.registry.sink import RegistrySink
    from packager.images.seen_blobs import SeenBlobs
    from packager.images.target import registry_of

    return RegistrySink(
        registry_of(target),
        keys=context.claim_keys(),
        clients=context.clients(),
        seen=SeenBlobs(context.state_file),
        on_warning=context.on_warning,
    )


def _docker_sink(target: ImageTarget, context: SinkContext) -> ImageSink:
    from packager.images.daemon.sink import DockerSink

    return DockerSink(target, reader=context.reader, on_event=context.on_event)


def _directory_sink(target: ImageTarget, context: SinkContext) -> ImageSink:
    from packager.images.target import directory_of
    from packager.images.trees.directory import TreeDirectory
    from packager.images.trees.sink import TreeSink

    index = _index(context)
    store = TreeDirectory(directory_of(target), index)
    return TreeSink(target, store, index, context.reader, verify=context.verify)


def _bucket_sink(target: ImageTarget, context: SinkContext) -> ImageSink:
    from packager.core.remote.s3_write import WritableBucket
    from packager.images.target import bucket_of
    from packager.images.trees.bucket import TreeBucket
    from packager.images.trees.journal import TreeJournal
    from packager.images.trees.sink import TreeSink

    place = bucket_of(target)
    journal = TreeJournal(context.state_file, target.text.rstrip("/"))
    store = TreeBucket(WritableBucket(place.bucket), place, journal)
    return TreeSink(target, store, _index(context), context.reader, verify=context.verify)


def _index(context: SinkContext) -> DigestIndex:
    from packager.images.digest_index import DigestIndex

    return DigestIndex(context.state_file)


def _llmcompressor() -> Quantizer:
    from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer

    return LlmCompressorQuantizer()


def _stream() -> Quantizer:
    from packager.optimize.quantize.stream.quantizer import StreamQuantizer

    return StreamQuantizer()


def _vllm_cache() -> Compiler:
    from packager.optimize.compile.vllm_cache import VllmCacheCompiler

    return VllmCacheCompiler()


def _neuron_compiler() -> Compiler:
    from packager.optimize.compile.neuron import NeuronCompiler

    return NeuronCompiler()


SOURCES: Table[SourceRow] = Table(
    "source",
    {
        "local": Row("a directory on this machine", _local_source),
        "hub": Row("Hugging Face Hub, org/name@revision", _hub_source),
        "hf": Row(
            "hf://org/name@revision, streamed from the hub without landing on disk",
            _hub_stream_source,
        ),
        "s3": Row("s3://BUCKET/PREFIX, streamed from S3", _s3_source),
    },
    port="ModelSource",
    group="packager.sources",
)
FAMILIES: Table[FamilyRow] = Table(
    "family",
    {
        "vllm": Row("vLLM's OpenAI server, CPU and GPU images", _vllm),
        "lmi": Row("AWS Large Model Inference (DJL Serving)", _lmi),
        "tgi": Row("Text Generation Inference", _tgi),
        "sglang": Row("SGLang's server", _sglang),
        "neuron": Row("Inferentia and Trainium images", _neuron),
    },
    port="ContainerFamily",
    group="packager.families",
)
BASES: Table[BaseRow] = Table(
    "base",
    {
        "registry": Row("HOST/REPOSITORY:TAG", _registry_base),
        "oci": Row("oci:DIR[:TAG], an OCI layout", _layout_base),
        "docker": Row("docker:NAME, a local image", _docker_base),
        "embedded": Row("embedded:NAME, built by packager", _embedded_base),
        "scratch": Row("scratch, an empty image", _scratch_base),
    },
    port="BaseSource",
    group="packager.bases",
)
# Images that exist, to inspect, compare and copy.
IMAGES: Table[ImageRow] = Table(
    "image",
    {
        "oci": Row("oci:DIR[:TAG], an OCI layout", _layout_image),
        "registry": Row("HOST/REPOSITORY:TAG", _registry_image),
        "docker": Row("docker:NAME, a local image", _docker_image),
    },
)
# Layouts are written first: other sinks can then read the layout's copy instead of the weights.
SINKS: Table[SinkRow] = Table(
    "output",
    {
        "oci": SinkRow(
            "oci:DIR[:TAG], an OCI layout",
            _layout_sink,
            SinkTraits(order=0, takes_sparse_base=True),
        ),
        "registry": SinkRow("HOST/REPOSITORY:TAG", _registry_sink, SinkTraits(is_remote=True)),
        "docker": SinkRow(
            "docker:NAME:TAG, an engine",
            _docker_sink,
            SinkTraits(order=2, takes_artifacts=False, takes_compressed=False, keeps_index=False),
        ),
        "dir": SinkRow(
            "dir:DIR, the model's files in a directory",
            _directory_sink,
            SinkTraits(order=3, takes_artifacts=False, keeps_index=False, holds_tree=True),
        ),
        "s3": SinkRow(
            "s3://BUCKET/PREFIX, the model's files in a bucket",
            _bucket_sink,
            SinkTraits(
                order=3,
                is_remote=True,
                takes_artifacts=False,
                keeps_index=False,
                holds_tree=True,
            ),
        ),
    },
    port="ImageSink",
    group="packager.sinks",
    row_type=SinkRow,
)
QUANTIZERS: Table[QuantizerRow] = Table(
    "quantizer",
    {
        "llmcompressor": Row("llm-compressor: AWQ, GPTQ, FP8, SmoothQuant, NVFP4", _llmcompressor),
        "stream": Row("FP8, INT4, NVFP4 and MX formats while weights are read, no tool", _stream),
    },
    port="Quantizer",
    group="packager.quantizers",
)
# In the order in which `--compile auto` tries them.
COMPILERS: Table[CompilerRow] = Table(
    "compiler",
    {
        "vllm_cache": Row(
            "what vLLM compiles at its first start: torch.compile, Triton, FlashInfer", _vllm_cache
        ),
        "neuron": Row(
            "graphs for Inferentia and Trainium, compiled without a device", _neuron_compiler
        ),
    },
    port="Compiler",
    group="packager.compilers",
)
# Directories that `packager cache import --from` reads.
TREES: Table[TreeRow] = Table(
    "layout",
    {},
    port="TreeReader",
    group="packager.trees",
)
DEPLOYERS: Table[DeployerRow] = Table("platform", {}, port="Deployer", group="packager.deployers")
# By the scheme of a name, such as sagemaker://NAME: the way to a deployment that is measured.
ROUTES: Table[RouteRow] = Table("deployment", {}, group="packager.routes")
# Lines of `packager inspect` with measurements of an image after its build.
SECTIONS: Table[SectionRow] = Table("section", {}, group="packager.sections")
# As `packager list` names them.
TABLES: Mapping[str, Table[Any]] = {
    "families": FAMILIES,
    "sources": SOURCES,
    "bases": BASES,
    "outputs": SINKS,
    "executors": EXECUTORS,
    "quantizers": QUANTIZERS,
    "compilers": COMPILERS,
    "platforms": DEPLOYERS,
}


def outside_tools() -> tuple[str, ...]:
    """Return the names of tools that installed packages register."""
    return tuple(_tools())


def outside_tool_directory(name: str) -> Path | None:
    """Return the directory of a tool that an installed package brings; None for another name.

    The entry point names a path.  Raises `BrokenPlugin` where it cannot be loaded.
    """
    point = _tools().get(name)
    if point is None:
        return None
    loaded = load_entry_point("tool", point)
    if not isinstance(loaded, str | Path):
        reason = f"{point.value} is {type(loaded).__name__}, not the path of a directory"
        raise BrokenPlugin("tool", name, origin_of(point), reason)
    return Path(loaded)


def _tools() -> Mapping[str, EntryPoint]:
    return entry_points_of("packager.tools", tuple(sys.path))

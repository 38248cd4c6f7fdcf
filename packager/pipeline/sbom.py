"""The parts of a built image, as an SBOM lists them.

Everything in it follows from the plan, the files and the base: no time, no path of this machine,
no place that the image was written to.  So equal builds have equal documents, and what is not
known is said to be incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from packager.core.adapters import ServedAdapter
from packager.core.artifact import Artifacts
from packager.core.engine_rows import engine_row
from packager.core.facts import Facts
from packager.core.image import Blob, Inline, TreeFile, Written
from packager.core.model import ModelFile, ModelRef
from packager.core.plan import Plan
from packager.core.quality import QualityReport
from packager.core.samples import Samples
from packager.core.serving import COMPILED_DIR, ServingConfig
from packager.images.assemble import files_of_image
from packager.images.oci import sha256
from packager.images.sbom import purls
from packager.images.sbom.components import Component, Sbom
from packager.models.model_card import ModelCard
from packager.pipeline.attached_record import published_base
from packager.pipeline.licences import cards_of, licences_of
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Assembled

DigestOf = Callable[[Blob, str], str]


def make_sbom(assembled: Assembled, written: Written, services: BuildServices) -> Sbom:
    """Return the parts of what was written."""
    planned, artifacts = assembled.planned, assembled.artifacts
    facts, plan = planned.facts, planned.plan
    digest = written.image.digest if written.refs else written.trees[0].digest
    digest_of = passed_digests(written, services)
    files = files_of_image(artifacts, assembled.serving, plan.weights)
    is_tree = not written.refs
    served = artifacts.model if is_tree else files.model
    drafted = artifacts.draft if is_tree else files.draft
    cards = dict(cards_of(facts, services))
    parts: list[Component] = [
        _model(assembled, cards["model"], served, digest_of),
        *_data(facts),
        *_tools(assembled),
        _configuration(assembled.serving),
    ]
    if plan.draft is not None:
        parts.append(_draft(plan, cards.get("draft", ModelCard()), drafted, digest_of))
    if artifacts.compiled:
        parts.append(_compiled(artifacts, digest_of))
    for adapter in plan.adapters.adapters if plan.adapters else ():
        found = artifacts.adapters.get(adapter.directory, ())
        parts.append(_adapter(adapter, cards[f"adapter {adapter.name}"], found, digest_of))
    if written.refs and facts.base is not None and facts.base.digest:
        parts.append(_base(facts, services.base_packages(facts.base)))
    parts.append(_engine(plan, parts))
    unknown = [one.ref for one in parts if not _is_whole(one)]
    whole = [one.ref for one in parts if one.ref not in unknown]
    subject = Component(
        ref="image",
        type="container" if written.refs else "application",
        name=plan.served_name,
        version=digest,
        sha256=digest.removeprefix("sha256:"),
        purl=purls.oci(plan.served_name, digest, _architecture(facts)) if written.refs else "",
    )
    return Sbom(
        subject=subject,
        components=tuple(parts),
        complete=tuple(whole),
        incomplete=(*unknown, *(["image"] if unknown else [])),
        version=facts.packager_version,
    )


def passed_digests(written: Written, services: BuildServices) -> DigestOf:
    """Return what tells the SHA-256 of a file: stated, of this build's pass, or known before."""

    def digest_of(blob: Blob, stated: str) -> str:
        return stated or written.files.get(blob, "") or services.digest_of(blob, stated)

    return digest_of


def hashed_files(artifacts: Artifacts, serving: ServingConfig) -> Iterator[TreeFile]:
    """Yield the files whose digests an SBOM states, with the bytes that they have in layers."""
    for directory, files in (
        (serving.model_dir, artifacts.model),
        (serving.draft_dir, artifacts.draft),
        (COMPILED_DIR, artifacts.compiled),
        *artifacts.adapters.items(),
    ):
        for file in files:
            path = f"{directory}/{file.path}"
            yield TreeFile(path=path, role="other", content=file.content, sha256=file.sha256)


def _architecture(facts: Facts) -> str:
    return facts.base.platform.architecture if facts.base else ""


def _model(
    assembled: Assembled, card: ModelCard, files: Iterable[ModelFile], digest_of: DigestOf
) -> Component:
    facts, plan = assembled.planned.facts, assembled.planned.plan
    made = plan.quantization is not None and not plan.quantization.existing
    source = _origin("model/source", plan.model, card)
    about = [
        ("packager:precision", plan.precision),
        ("packager:dtype", plan.dtype),
        ("packager:weights", plan.weights),
    ]
    if plan.profile.quantization:
        about.append(("packager:arrived-quantized", plan.profile.quantization))
    quantizing = [step for step in assembled.planned.recipe.steps if step.gives == "model"]
    refs = [f"tool/{step.name}" for step in quantizing]
    refs += ["data/calibration"] if facts.samples else []
    group, _, name = plan.model.published_name.rpartition("/")
    return Component(
        ref="model",
        type="machine-learning-model",
        name=plan.served_name if made else name or plan.model.name,
        group="" if made else group,
        version="" if made else plan.model.revision,
        purl="" if made else _model_purl(plan.model),
        licenses=licences_of(card),
        components=tuple(_files("model", files, digest_of)),
        ancestors=(source,) if made else source.ancestors,
        notes=_how(assembled) if made else card.relation,
        about=tuple(about),
        model_card=tuple(_model_card(facts, plan, card, assembled.quality).items()),
        needs=tuple(refs),
    )


def _origin(ref: str, model: ModelRef, card: ModelCard) -> Component:
    """Return a model as its publisher names it, with what its card says it was made from."""
    group, _, name = model.published_name.rpartition("/")
    return Component(
        ref=ref,
        type="machine-learning-model",
        name=name or model.name,
        group=group,
        version=model.revision,
        purl=_model_purl(model),
        licenses=licences_of(card),
        ancestors=tuple(
            Component(
                ref=f"{ref}/base/{number}",
                type="machine-learning-model",
                name=base.rpartition("/")[2],
                group=base.rpartition("/")[0],
            )
            for number, base in enumerate(card.base_models)
        ),
        notes=card.relation,
    )


def _model_purl(model: ModelRef) -> str:
    if model.source != "hub" or not model.revision:
        return ""
    return purls.huggingface(model.name, model.revision)


def _how(assembled: Assembled) -> str:
    """Return how the served weights were made of their source."""
    quantization = assembled.planned.plan.quantization
    assert quantization is not None
    steps = [step for step in assembled.planned.recipe.steps if step.gives == "model"]
    outcomes = [assembled.artifacts.outcomes.get(step.name) for step in steps]
    keys = [outcome.key for outcome in outcomes if outcome and outcome.key]
    options = " ".join(f"{name}={value}" for name, value in quantization.options)
    text = f"quantized to {quantization.scheme} by {quantization.method}"
    text += f" ({options})" if options else ""
    return text + (f", cache key {keys[0]}" if keys else "")


def _model_card(
    facts: Facts, plan: Plan, card: ModelCard, quality: QualityReport | None
) -> dict[str, Any]:
    family = facts.model.config.get("model_type")
    parameters: dict[str, Any] = {"modelArchitecture": plan.profile.architecture}
    if card.task:
        parameters["task"] = card.task
    if isinstance(family, str) and family.isprintable():
        parameters["architectureFamily"] = family[:100]
    named = [{"type": "dataset", "name": name} for name in card.datasets]
    used = [{"ref": "data/calibration"}] if facts.samples else []
    if named or used:
        parameters["datasets"] = [*named, *used]
    found: dict[str, Any] = {"modelParameters": parameters}
    if quality is not None:
        figures = {"kl-divergence": quality.quality.kld_mean}
        figures["top-1-agreement"] = quality.quality.top1_agreement
        metrics = [
            {"type": name, "value": f"{figure:.6g}"}
            for name, figure in figures.items()
            if figure is not None
        ]
        if metrics:
            found["quantitativeAnalysis"] = {"performanceMetrics": metrics}
    return found


def _data(facts: Facts) -> Iterator[Component]:
    for ref, samples in (("calibration", facts.samples), ("evaluation", facts.evaluation)):
        if samples is not None:
            yield _samples(ref, samples)


def _samples(ref: str, samples: Samples) -> Component:
    """Describe texts by their digest; the file that they came from is a path of this machine."""
    return Component(
        ref=f"data/{ref}",
        type="data",
        name=f"{ref} texts",
        sha256=samples.digest.removeprefix("sha256:"),
        about=(("packager:samples", str(len(samples.samples))),),
    )


def _tools(assembled: Assembled) -> Iterator[Component]:
    for step in assembled.planned.recipe.steps:
        outcome = assembled.artifacts.outcomes.get(step.name)
        versions = outcome.result.versions if outcome else {}
        yield Component(
            ref=f"tool/{step.name}",
            type="application",
            name=step.tool,
            version=str(versions.get(step.tool, "")),
            about=tuple(
                (f"packager:version:{name}", version) for name, version in sorted(versions.items())
            ),
            is_tool=True,
        )


def _engine(plan: Plan, parts: Iterable[Component]) -> Component:
    """Return the engine; it is one of the base's packages where those are known."""
    engine, version = plan.container.engine, plan.container.engine_version
    package = engine_row(engine).package if version else ""
    return Component(
        ref="engine",
        type="application",
        name=engine or plan.container.family,
        version=version,
        purl=purls.pypi(package, version) if package else "",
        needs=("model", *_installed(package, version, parts)),
    )


def _installed(package: str, version: str, parts: Iterable[Component]) -> tuple[str, ...]:
    """Return the ref of a Python package of the base in exactly this version."""
    base = next((one for one in parts if one.ref == "base"), None)
    wanted = purls.pypi(package, version) if package else ""
    return tuple(one.ref for one in base.components if one.purl == wanted) if base else ()


def _configuration(serving: ServingConfig) -> Component:
    files = tuple(
        Component(
            ref=f"configuration{file.path}",
            type="file",
            name=file.path,
            sha256=sha256(file.data).removeprefix("sha256:"),
        )
        for file in serving.files
    )
    return Component(
        ref="configuration",
        type="application",
        name="packager serving configuration",
        components=files,
    )


def _draft(
    plan: Plan, card: ModelCard, files: Iterable[ModelFile], digest_of: DigestOf
) -> Component:
    draft = plan.draft
    assert draft is not None
    ref = draft.ref
    group, _, name = ref.published_name.rpartition("/") if ref else ("", "", "")
    return Component(
        ref="draft",
        type="machine-learning-model",
        name=name or (ref.name if ref else draft.kind),
        group=group,
        version=ref.revision if ref else "",
        purl=_model_purl(ref) if ref else "",
        licenses=licences_of(card),
        components=tuple(_files("draft", files, digest_of)),
        about=(("packager:draft", draft.kind),),
        needs=("model",),
    )


def _compiled(artifacts: Artifacts, digest_of: DigestOf) -> Component:
    return Component(
        ref="compiled",
        type="application",
        name="files compiled ahead of time",
        components=tuple(_files("compiled", artifacts.compiled, digest_of)),
        needs=("engine", "model"),
    )


def _adapter(
    adapter: ServedAdapter, card: ModelCard, files: Iterable[ModelFile], digest_of: DigestOf
) -> Component:
    ref = f"adapter/{adapter.name}"
    return Component(
        ref=ref,
        type="machine-learning-model",
        name=adapter.name,
        version=adapter.ref.revision,
        purl=_model_purl(adapter.ref),
        licenses=licences_of(card),
        components=tuple(_files(ref, files, digest_of)),
        about=(("packager:adapter-rank", str(adapter.rank)),),
        needs=("model",),
    )


def _base(facts: Facts, packages: tuple[Component, ...]) -> Component:
    base = facts.base
    assert base is not None
    named = published_base(base.reference)
    last = named.partition("@")[0].rpartition("/")[2].partition(":")[0] or "base"
    return Component(
        ref="base",
        type="container",
        name=named,
        version=base.digest,
        sha256=base.digest.removeprefix("sha256:"),
        purl=purls.oci(last, base.digest, base.platform.architecture),
        components=packages,
    )


def _files(ref: str, files: Iterable[ModelFile], digest_of: DigestOf) -> Iterator[Component]:
    for file in files:
        content = file.content
        blob = content if isinstance(content, Blob) else Blob((content,))
        if not blob.size:
            blob = Blob((Inline(b""),))
        about: Mapping[str, str] = {"packager:size": str(file.size)}
        if file.part_of:
            about = {**about, "packager:part-of": f"sha256:{file.part_of}"}
        yield Component(
            ref=f"{ref}/{file.path}",
            type="file",
            name=file.path,
            sha256=digest_of(blob, file.sha256),
            about=tuple(about.items()),
        )


def _is_whole(one: Component) -> bool:
    """Return whether all of a part is listed: of files every digest, of a base its packages."""
    if one.ref == "base":
        return bool(one.components)
    if one.ref == "engine":
        return any(ref.startswith("base/") for ref in one.needs)
    if one.ref in ("model", "draft", "compiled") or one.ref.startswith("adapter/"):
        files = [part for part in one.components if part.type == "file"]
        return bool(files) and all(part.sha256 for part in files)
    return bool(one.sha256 or one.components)

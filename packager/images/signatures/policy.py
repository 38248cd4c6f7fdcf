"""Policies: which keys must have proven what of which images and models.

    default = "reject"                              # of what no rule names; or "accept"
    [[image]]
    names = ["registry.example.com/models/**"]      # also oci:/DIR/** and docker:NAME
    keys = ["release.pub"]                          # beside this file; any one of them
    require = ["signature", "sbom", "provenance"]   # or URIs of predicates; [] takes the unproven
    builders = ["https://packager.dev/builders/docker@v1"]
    bases = ["docker.io/vllm/vllm-openai", "scratch"]
    deny_licences = ["CC-BY-NC-*"]
    [[model]]
    names = ["acme/**", "/srv/models/**"]
    keys = ["publisher.pub"]                        # of an OpenSSF model signature

Every rule that names an image must hold: no order, so that none hides another.  Names are compared
as registries know them (`canonical_name`).  An unknown field refuses the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from packager.core.documents import NotStrict, parse_toml
from packager.core.errors import ModelRefused, UsageError
from packager.core.files.user_files import read_user_file
from packager.core.image import Attached
from packager.core.references import ImageTarget, LayoutTarget, RegistryTarget
from packager.core.strict_models import StrictDocument
from packager.core.validation import first_fault
from packager.images.sbom.licences import denied_licences
from packager.images.signatures.reports import REPORTS
from packager.images.signatures.statements import CYCLONEDX, SIGNED, SLSA
from packager.images.signatures.verifying import PublicKey, SignedStatement, find_proofs

TYPES = {"signature": SIGNED, "sbom": CYCLONEDX, "provenance": SLSA} | {
    name: REPORTS[name] for name in ("vex", "vuln")
}
_HINT = "see `packager verify --help`, and docs/supply-chain.md for the fields"
_MAX_BYTES = 256 * 1024


class ImageRule(StrictDocument):
    """What must be proven of the images of some names."""

    names: tuple[str, ...] = Field(min_length=1)
    keys: tuple[str, ...] = ()
    require: tuple[str, ...] = ("signature",)
    builders: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    deny_licences: tuple[str, ...] = ()


class ModelRule(StrictDocument):
    """Who must have signed the models of some names; without keys they need no signature."""

    names: tuple[str, ...] = Field(min_length=1)
    keys: tuple[str, ...] = ()


class _Document(StrictDocument):
    default: Literal["reject", "accept"] = "reject"
    deny_licences: tuple[str, ...] = ()
    image: tuple[ImageRule, ...] = ()
    model: tuple[ModelRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy with its keys, which are read when it is."""

    place: str
    digest: str  # SHA-256 of the file, in hexadecimal
    rejects: bool  # what no rule names
    images: tuple[tuple[ImageRule, tuple[PublicKey, ...]], ...]
    models: tuple[tuple[ModelRule, tuple[PublicKey, ...]], ...]
    deny_licences: tuple[str, ...] = ()

    def keys_for_model(self, name: str) -> tuple[tuple[PublicKey, ...], ...]:
        """Return the keys of each rule that names a model; one of each must have signed it.

        Raises `ModelRefused` where none does and the policy rejects what it does not name.
        """
        is_path = name.startswith(("/", "s3://"))
        known_as = name if is_path else name.lower()  # hubs take any case for the same model
        found = [
            (rule, keys)
            for rule, keys in self.models
            if _is_named(known_as, (one if is_path else one.lower() for one in rule.names))
        ]
        if not found and self.rejects:
            raise not_allowed(name, "no rule for models names it", self.place)
        return tuple(keys for rule, keys in found if rule.keys)


def not_allowed(name: str, reason: str, place: str) -> ModelRefused:
    """Return an error: a policy does not let an image or a model pass."""
    return ModelRefused(
        f"{name!r} is not used: {reason} (policy {place!r})",
        hint="have it signed, or change the policy; --no-policy skips it once, and is recorded",
        code="AgainstPolicy",
    )


def read_policy(path: Path) -> Policy:
    """Read a policy and its keys; raise `UsageError` for a file that is none."""
    data = read_user_file(path, what="the policy", hint=_HINT, max_bytes=_MAX_BYTES)
    try:
        document = _Document.model_validate(parse_toml(data, max_bytes=_MAX_BYTES))
        for rule in document.image:
            _check_rule(rule)
    except ValidationError as error:
        raise _unusable(path, first_fault(error)) from error
    except NotStrict as error:
        raise _unusable(path, str(error)) from error

    def keys_of(rule: ImageRule | ModelRule) -> tuple[PublicKey, ...]:
        return tuple(PublicKey(str(path.parent / Path(one).expanduser())) for one in rule.keys)

    return Policy(
        place=str(path),
        digest=hashlib.sha256(data).hexdigest(),
        rejects=document.default == "reject",
        images=tuple((rule, keys_of(rule)) for rule in document.image),
        models=tuple((rule, keys_of(rule)) for rule in document.model),
        deny_licences=document.deny_licences,
    )


def canonical_name(target: ImageTarget) -> str:
    """Return the one name of an image's place, however it was written."""
    if isinstance(target, RegistryTarget):
        host = target.image.host.lower().removesuffix(":443")
        return f"{host}/{target.image.repository}"
    if isinstance(target, LayoutTarget):
        return f"oci:{target.directory.resolve()}"
    return f"{target.scheme}:{target.rest}"


def check_image(
    policy: Policy, name: str, proven_of: Mapping[str, Sequence[Attached]]
) -> tuple[SignedStatement, ...]:
    """Return what the policy's keys have proven of an image; raise `ModelRefused` otherwise.

    `proven_of` has what is attached to each digest that stands for the image: its own, and that of
    the index which names it.
    """
    rules = [
        (rule, keys)
        for rule, keys in policy.images
        if _is_named(name, map(_image_pattern, rule.names))
    ]
    if not rules and policy.rejects:
        raise not_allowed(name, "no rule for images names it", policy.place)
    found: list[SignedStatement] = []
    for rule, keys in rules:
        proofs = [
            one
            for digest, artifacts in proven_of.items()
            for one in find_proofs(digest, artifacts, keys)
        ]
        if fault := _fault(rule, proofs, policy.deny_licences):
            shown = ", ".join(proven_of)
            raise not_allowed(f"{name}@{shown}", fault, policy.place)
        found += proofs
    return tuple(found)


def _fault(rule: ImageRule, proofs: Sequence[SignedStatement], denied: Sequence[str]) -> str:
    """Return why a rule does not hold; "" where it does."""
    kinds = {one.predicate_type for one in proofs}
    missing = [one for one in rule.require if TYPES.get(one, one) not in kinds]
    if missing:
        return f"no {' and no '.join(missing)} by {', '.join(rule.keys) or 'any key'}"
    made = [one.predicate for one in proofs if one.predicate_type == SLSA]
    if rule.builders and not any(_builder(one) in rule.builders for one in made):
        built = ", ".join(sorted(filter(None, map(_builder, made)))) or "nobody says by whom"
        return f"its builder is not allowed: {built}"
    if rule.bases and not any(
        _is_named(_base(one), map(_image_pattern, rule.bases)) for one in made
    ):
        bases = ", ".join(sorted(filter(None, map(_base, made)))) or "nobody says which"
        return f"its base is not allowed: {bases}"
    wanted = (*denied, *rule.deny_licences)
    listed = [one.predicate for one in proofs if one.predicate_type == CYCLONEDX]
    if rule.deny_licences and not listed:
        return "no sbom says which licences it has"
    bad = sorted({word for one in listed for word in denied_licences(one, wanted)})
    return f"licences are denied: {', '.join(bad)}" if bad else ""


def _builder(provenance: Mapping[str, Any]) -> str:
    try:
        return str(provenance["runDetails"]["builder"]["id"])
    except (LookupError, TypeError):
        return ""


def _base(provenance: Mapping[str, Any]) -> str:
    """Return the name of the base that a provenance states; `scratch` where it states none."""
    try:
        listed = provenance["buildDefinition"]["resolvedDependencies"]
        found = next((one for one in listed if one.get("name") == "base"), None)
        uri = str(found["uri"]) if found else "scratch"
    except (LookupError, TypeError, AttributeError):
        return ""
    name = uri.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}" if slash else name


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    return any(glob_pattern(one).fullmatch(name) for one in patterns)


def _image_pattern(text: str) -> str:
    """Return the glob of an image's names with its host as registries know it."""
    host, slash, rest = text.partition("/")
    is_host = slash and not host.startswith(("oci:", "docker:"))
    return f"{host.lower().removesuffix(':443')}/{rest}" if is_host else text


def glob_pattern(text: str) -> re.Pattern[str]:
    """Return a glob as an expression: `*` stays within one part of a path, `**` does not."""
    words = {"**": ".*", "*": "[^/]*"}
    parts = re.split(r"(\*\*|\*)", text)
    return re.compile("".join(words.get(one) or re.escape(one) for one in parts), re.DOTALL)


def _check_rule(rule: ImageRule) -> None:
    for one in rule.require:
        if one not in TYPES and "://" not in one:
            raise NotStrict(f"{one!r} is no type: expected {', '.join(TYPES)}, or a URI")
    if rule.require and not rule.keys:
        raise NotStrict(f"the rule for {rule.names[0]!r} requires proof and names no keys")
    needs = {"builders": "provenance", "bases": "provenance", "deny_licences": "sbom"}
    for name, kind in needs.items():
        if getattr(rule, name) and kind not in rule.require:
            raise NotStrict(f"{name} of {rule.names[0]!r} needs {kind!r} in `require`")


def _unusable(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"the policy {str(path)!r} cannot be used: {reason}", hint=_HINT, code="UnusablePolicy"
    )

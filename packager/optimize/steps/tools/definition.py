"""A tool's directory: its description, requirements, and the inputs of its digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from packager.core.documents import parse_toml
from packager.core.errors import NotFound, UsageError
from packager.core.suggestions import guessed
from packager.core.tool import Build, ToolFacts
from packager.core.worker import PROTOCOL
from packager.optimize.steps.tools.locks import installed_versions, normal, pinned_versions

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
# The newest of that tag on 2026-10-05; `scripts/renew-images` asks for newer ones.
IMAGE = (
    "python:3.12-slim-bookworm"
    "@sha256:54c85f3c47607a77f32adec749d3c81d1348bf25833671f512b26a9b6d778cb3"
)
Hashes = Literal["verified", "not verified", "not asked for"]


class InstallGroup(BaseModel):
    """One call of the installer."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    requirements: str
    constraints: str = ""
    no_deps: bool = False
    require_hashes: bool = Field(default=False, description="of every file; takes wheels only")
    prefer: str = Field(default="", description="requirements to take where the index has them")
    cuda: str = Field(default="", description="requirements to take instead, to compute on GPUs")
    needed_by: str = Field(default="", description="only where this one, installed, asks for it")


class ToolFile(BaseModel):
    """`tool.toml`."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    summary: str
    python: str = Field(default=">=3.11", description="version specifiers of its environment's")
    disk_gb: float = Field(default=0.1, gt=0, description="free space that installing needs")
    cuda_disk_gb: float = Field(default=0.0, ge=0, description="the same with builds for GPUs")
    image: str = Field(default=IMAGE, description="what its image is made from")
    packages: dict[str, str] = Field(default_factory=dict)
    install: tuple[InstallGroup, ...] = ()
    environment: str = Field(default="", description="of another tool, instead of its own")
    in_serving_image: bool = Field(default=False, description="runs in the image of its step")

    @field_validator("python")
    @classmethod
    def _specifies_versions(cls, text: str) -> str:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            SpecifierSet(text)
        except InvalidSpecifier as error:
            raise ValueError(
                f"{text!r} is not a list of version specifiers, such as '>=3.11,<3.14'"
            ) from error
        return text

    @model_validator(mode="after")
    def _installs_or_borrows(self) -> ToolFile:
        borrows = self.environment or self.in_serving_image
        if borrows and (self.install or self.packages):
            raise ValueError("a tool in another's environment installs and names no packages")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as its directory describes it."""

    name: str
    directory: Path
    file: ToolFile
    worker_digest: str
    requirements_digest: str
    locks: Mapping[str, str]  # its requirements, by the name that tool.toml has for each
    lender: ToolDefinition | None = None  # whose environment it runs in, where it has none
    allow_unhashed: bool = False  # installed without comparing files with the hashes of its locks
    build: Build = "cpu"  # of torch, that it is installed with

    @property
    def provider(self) -> ToolDefinition:
        """The tool whose environment it runs in: mostly itself."""
        return self.lender or self

    @property
    def hashes(self) -> Hashes:
        """Report whether installed packages are compared with the hashes of the tool's locks."""
        if not self.file.install or not all(group.require_hashes for group in self.file.install):
            return "not asked for"
        return "not verified" if self.allow_unhashed else "verified"

    @property
    def builds(self) -> tuple[Build, ...]:
        """List the builds of torch that the tool has environments for."""
        return ("cpu", "cuda") if any(one.cuda for one in self.provider.file.install) else ("cpu",)

    @property
    def disk_gb(self) -> float:
        """Return the free space in GB that installing needs."""
        file = self.provider.file
        return (file.cuda_disk_gb if self.build == "cuda" else 0.0) or file.disk_gb

    def for_build(self, build: Build) -> ToolDefinition:
        """Choose a build of torch: another environment, with results under other keys.

        A tool that names no requirements for GPUs has one environment for both.
        """
        if build == "cpu" or build not in self.builds:
            return self
        lender = self.lender.for_build(build) if self.lender else None
        own = {
            group.cuda: self.provider.locks[group.cuda].encode()
            for group in self.provider.file.install
            if group.cuda
        }
        digest = _digest({"build": build.encode(), "": self.requirements_digest.encode(), **own})
        return replace(self, build=build, requirements_digest=digest, lender=lender)

    def without_hashes(self) -> ToolDefinition:
        """Install without comparing hashes: another environment, with results under other keys."""
        if not any(group.require_hashes for group in self.file.install):
            return self
        digest = hashlib.sha256(f"without hashes {self.requirements_digest}".encode()).hexdigest()
        return replace(self, allow_unhashed=True, requirements_digest=digest)

    @property
    def worker(self) -> Path:
        return self.directory / "worker.py"

    def facts(
        self, versions: Mapping[str, str] | None, *, python: str = "", image: str = ""
    ) -> ToolFacts:
        """Describe it for keys; `versions` are those of its environment, None without one.

        Without one, the locks tell what would be installed with that `python`.
        """
        declared, locks = self.provider.file.packages, self.provider.locks
        if versions is not None:
            environment = installed_versions(versions, locks.values())
        else:
            expected = [locks[name] for name in _expected(self.provider.file, self.build)]
            environment = pinned_versions(expected, python)
            environment |= {"python": python} if python else {}
        known = versions or {}
        lower = {normal(name): version for name, version in known.items()}
        if self.build == "cuda":  # a release is declared as its build for processors
            groups = [locks[group.cuda] for group in self.provider.file.install if group.cuda]
            lower = {**pinned_versions(groups, python), **lower}
        return ToolFacts(
            name=self.name,
            worker=self.worker_digest,
            requirements=self.requirements_digest,
            packages={name: lower.get(normal(name), text) for name, text in declared.items()},
            environment=environment,
            image=image,
            installed=versions is not None or self.file.in_serving_image,
            build=self.build,
        )

    def borrowing(self, lender: ToolDefinition) -> ToolDefinition:
        """Run in the environment of another tool, which must be its own."""
        if lender.file.environment:
            raise UsageError(
                f"tool {self.name!r} borrows the environment of {lender.name!r}, "
                f"which is {lender.file.environment!r}'s",
                hint="name the tool that installs it",
            )
        return replace(self, lender=lender, requirements_digest=lender.requirements_digest)


def _expected(file: ToolFile, build: Build) -> Iterator[str]:
    """Yield the locks whose packages an environment will have, as far as known."""
    for group in file.install:
        if build == "cuda" and group.cuda:
            yield group.cuda
        elif build == "cuda":
            yield group.requirements
        elif not group.needed_by:
            yield from (name for name in (group.prefer, group.requirements) if name)


def _tools_beside(directory: Path) -> tuple[str, ...]:
    return tuple(sorted(worker.parent.name for worker in directory.parent.glob("*/worker.py")))


def read_tool(name: str, directory: Path, helper: Path) -> ToolDefinition:
    """Read a tool's directory. `helper` is the directory of what all workers share."""
    if not NAME.fullmatch(name) or not (directory / "worker.py").is_file():
        raise NotFound(
            f"there is no tool {name!r}",
            hint=guessed(
                name, _tools_beside(directory), "`packager tools ls` shows those that there are"
            ),
        )
    try:
        data = parse_toml((directory / "tool.toml").read_bytes())
        file = ToolFile.model_validate(data)
        requirements = _digest(_required(directory, file))
        locks = {
            name: (directory / name).read_text(encoding="utf-8")
            for group in file.install
            for name in (group.prefer, group.requirements, group.cuda)
            if name
        }
    except (OSError, ValueError, ValidationError) as error:
        said = _first(error) if isinstance(error, ValidationError) else str(error).splitlines()[0]
        raise UsageError(
            f"the description of tool {name!r} cannot be used: {said}",
            hint="docs/tools.md says what stands in tool.toml",
        ) from error
    own = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*.py")}
    return ToolDefinition(
        name=name,
        directory=directory,
        file=file,
        worker_digest=_digest({"protocol": str(PROTOCOL).encode()} | own | _shared(helper, own)),
        requirements_digest=requirements,
        locks=locks,
    )


def _shared(helper: Path, own: Mapping[str, bytes]) -> dict[str, bytes]:
    """The modules that workers share, as far as this one imports them; they import no others."""
    imported = {
        name
        for data in own.values()
        for name in re.findall(rb"^\s*(?:from|import) (\w+)", data, re.M)
    }
    return {
        path.name: path.read_bytes()
        for path in helper.glob("*.py")
        if path.stem.encode() in imported
    }


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    said = first["msg"].removeprefix("Value error, ")
    return f"{where}: {said}" if where else said


def _required(directory: Path, file: ToolFile) -> dict[str, bytes]:
    parts: dict[str, bytes] = {}
    for index, group in enumerate(file.install):
        flags = f"{group.no_deps} {group.require_hashes} {group.needed_by}".strip().encode()
        parts[f"{index} flags"] = flags
        for name in (group.requirements, group.constraints, group.prefer):
            if name:
                parts[f"{index} {name}"] = (directory / name).read_bytes()
    return parts


def _digest(parts: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, data in sorted(parts.items()):
        whole.update(f"{len(name.encode())} {name} {len(data)} ".encode() + data)
    return whole.hexdigest()

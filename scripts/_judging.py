"""Run the tests of many mutants in forks of one process that has collected all tests.

A mutant in the body of a function is put in place of the function's code, wherever the function
is.  What an import runs (constants, fields, defaults, decorators) needs another import: the fork
forgets the product and the tests, and imports them anew through a loader that has the mutant.
Nothing is written beside the sources, so no `.pyc` can hide a mutant or keep one.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from _mutations import mutated

ROOT = Path(__file__).resolve().parent.parent
OURS = ("packager", "artifact_cache", "tests")
MEMORY_BYTES = 8 << 30
_ESCAPED, _CAUGHT, _INVALID = 0, 1, 70
_OPTIONS = ("-q", "-s", "-p", "no:cacheprovider")


@dataclass(slots=True)
class Job:
    """A mutant and the tests that are to notice it."""

    file: str
    number: int  # of the file's sites; -1: no mutant
    deferred: bool
    tests: list[str]
    seconds: float  # that the tests are expected to take
    tag: Any = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a mutant: `by` is the test that failed, "time" or "crash"."""

    verdict: str  # caught, escaped or invalid
    by: str
    seconds: float


@dataclass(slots=True)
class _Child:
    job: Job
    pipe: int
    place: Path
    started: float


@dataclass(slots=True, eq=False)
class Judge:
    """Plugin that collects tests once and judges jobs instead of running the tests."""

    jobs: list[Job]
    workers: int
    report: Callable[[Job, Outcome], None]
    limit_s: float = float("inf")  # after which no job is begun
    pipe: int | None = None  # in a child
    functions: dict[str, list[FunctionType]] = field(default_factory=dict)
    sound: dict[tuple[str, bool], bool] = field(default_factory=dict)
    session: pytest.Session | None = None
    items: dict[str, pytest.Item] = field(default_factory=dict)

    def run(self) -> int:
        """Judge all jobs; return pytest's status of collecting."""
        files = dict.fromkeys(test.partition("::")[0] for job in self.jobs for test in job.tests)
        sys.path.insert(0, str(ROOT))
        os.chdir(ROOT)
        return int(pytest.main([*_OPTIONS, *files], plugins=[self]))

    def pytest_configure(self) -> None:
        """Let hypothesis try the same examples each time, and keep none."""
        from hypothesis import settings

        settings.register_profile("mutants", deadline=None, derandomize=True, database=None)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End a child with its first failure."""
        if self.pipe is not None and report.failed:
            os.write(self.pipe, report.nodeid.encode())
            os._exit(_CAUGHT)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Fork for each job."""
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        self.functions = _functions()
        gc.collect()
        gc.freeze()
        waiting = list(reversed(self.jobs))
        running: dict[int, _Child] = {}
        end = time.monotonic() + self.limit_s
        while waiting or running:
            if time.monotonic() > end:
                waiting.clear()
            while waiting and len(running) < self.workers:
                self._start(waiting.pop(), running)
            time.sleep(0.002)
            for pid in list(running):
                again = self._look_at(pid, running)
                if again is not None:
                    waiting.append(again)
        return True

    def _start(self, job: Job, running: dict[int, _Child]) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        place = Path(tempfile.mkdtemp(prefix="mutate-"))
        pid = os.fork()
        if pid == 0:
            os.close(read)
            self.pipe = write
            try:
                imports_s = 4 if job.deferred else 15
                _confine(place, imports_s + 5 * job.seconds)
                status = self._judge(job)
            except BaseException:
                status = _INVALID if job.number < 0 else 71
            os._exit(status)
        os.close(write)
        running[pid] = _Child(job, read, place, time.monotonic())

    def _look_at(self, pid: int, running: dict[int, _Child]) -> Job | None:
        """Report a child that ended; return a job that must be done before or again."""
        child = running[pid]
        took = time.monotonic() - child.started
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            if took > 300 + 60 * child.job.seconds:
                os.killpg(pid, signal.SIGKILL)
            return None
        del running[pid]
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what it started and left
        said = ""
        with suppress(BlockingIOError):
            said = os.read(child.pipe, 65536).decode(errors="replace")
        os.close(child.pipe)
        shutil.rmtree(child.place, ignore_errors=True)
        job = child.job
        outcome = _outcome(status, said, took)
        if job.number < 0:  # whether a test passes without a mutant
            self.sound[job.tests[0], job.deferred] = outcome.verdict == "escaped"
            job, outcome = job.tag
        if outcome.verdict == "caught" and outcome.by not in ("time", "crash"):
            test = outcome.by if job.deferred else _function_of(outcome.by)
            key = (test, job.deferred)
            if key not in self.sound:
                return Job(job.file, -1, job.deferred, [test], job.seconds, (job, outcome))
            if not self.sound[key]:
                job.tests = [one for one in job.tests if test not in (one, _function_of(one))]
                if job.tests:
                    return job
                outcome = Outcome("escaped", "", took)
        self.report(job, outcome)
        return None

    def _judge(self, job: Job) -> int:
        text = (ROOT / job.file).read_text("utf-8")
        code = None
        if job.number >= 0:
            tree = mutated(text, job.number)
            try:
                code = compile(tree, str(ROOT / job.file), "exec", dont_inherit=True)
            except SyntaxError:
                return _INVALID
            sys.meta_path.insert(0, _Substitute(job.file, code))
        if job.deferred and (code is None or self._put(job.file, text, code)):
            return self._run_collected(job.tests)
        return _run_anew(dict.fromkeys(_function_of(test) for test in job.tests), self)

    def _put(self, file: str, text: str, code: CodeType) -> bool:
        """Give the file's functions their new code; return whether any has changed."""
        path = str(ROOT / file)
        if _module_of(file) not in sys.modules:
            return True  # the loader has it
        before = _codes(compile(text, path, "exec", dont_inherit=True))
        after = _codes(code)
        changed = False
        for function in self.functions.get(path, ()):
            old = function.__code__
            key = (old.co_qualname, old.co_firstlineno)
            if old not in before.get(key, ()) or len(before[key]) != len(after.get(key, ())):
                continue
            new = after[key][before[key].index(old)]
            if new == old:
                continue
            try:
                function.__code__ = new
            except ValueError:
                return False  # it has other free variables
            changed = True
        return changed

    def _run_collected(self, tests: Sequence[str]) -> int:
        assert self.session is not None
        chosen = [self.items[test] for test in tests if test in self.items]
        if not chosen:
            return _INVALID
        for number, item in enumerate(chosen):
            following = chosen[number + 1] if number + 1 < len(chosen) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return _ESCAPED


class _Substitute(SourceFileLoader):
    """Finds one module, and loads other code for it than its file has."""

    def __init__(self, file: str, code: CodeType) -> None:
        super().__init__(_module_of(file), str(ROOT / file))
        self._code = code

    def find_spec(
        self, name: str, _path: object = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, _name: str) -> CodeType:
        return self._code


class _FirstFailure:
    """Plugin of the inner pytest."""

    def __init__(self, judge: Judge) -> None:
        self.pytest_runtest_logreport = judge.pytest_runtest_logreport
        self.pytest_configure = judge.pytest_configure


def _run_anew(tests: Sequence[str] | dict[str, None], judge: Judge) -> int:
    """Import the product and the tests once more, and run some."""
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    status = pytest.main([*_OPTIONS, *tests], plugins=[_FirstFailure(judge)])
    return _ESCAPED if status == 0 else _INVALID


def _confine(place: Path, seconds: float) -> None:
    """Make a child a group of its own with limits, a place for its files, and no output."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    tempfile.tempdir = os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = str(place)
    limit = int(seconds)  # of the processor: a busy machine is no mutant
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _outcome(status: int, said: str, took: float) -> Outcome:
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        return Outcome("caught", "time" if late else "crash", took)
    match os.WEXITSTATUS(status):
        case 0:
            return Outcome("escaped", "", took)
        case 1:
            return Outcome("caught", said, took)
        case 70:
            return Outcome("invalid", "", took)
        case _:
            return Outcome("caught", "crash", took)


def _functions() -> dict[str, list[FunctionType]]:
    """Return the functions of the product that there are, by the file they come from."""
    found: dict[str, list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(str(ROOT)):
            found[one.__code__.co_filename].append(one)
    return found


def _codes(module: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    """Return all code of a module by name and line."""
    found: dict[tuple[str, int], list[CodeType]] = defaultdict(list)

    def walk(code: CodeType) -> None:
        found[code.co_qualname, code.co_firstlineno].append(code)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                walk(constant)

    walk(module)
    return found


def _module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _function_of(test: str) -> str:
    """Return a test's id without its case: a mutant can change the names of cases."""
    return test.partition("[")[0]

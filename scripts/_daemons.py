"""Private daemons: start, find, wait for and stop background programs.

Shared by `docker-engine` and `registry`.  Standard library only, because both
run before anything is installed.  A daemon belongs to a root directory, whose
pid file holds its pid *and* the moment it was started, so a recycled pid is
never signalled.  Whoever starts one can be killed before that file is there, so
a daemon is also known by its configuration file, which is in the root directory
and in its command line.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")
# Exit status 101 means "action forbidden" to invoke-rc.d: nothing is started.
FORBIDDEN = "#!/bin/sh\n# while packager's scripts install packages\nexit 101\n"
NOT_RUNNING = 3  # what init scripts answer to `status` for a stopped service


class Failure(Exception):
    """Something the user has to know about; `hint` says what to do next."""

    def __init__(self, message: str, hint: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


def run_main(main: Callable[[], int]) -> None:
    """Run `main` and turn a `Failure` into a message, a hint and an exit status."""
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        if failure.hint:
            print(f"hint: {failure.hint}", file=sys.stderr)
        sys.exit(failure.code)
    except KeyboardInterrupt:
        sys.exit(130)


def say(text: str) -> None:
    """Report progress; stdout is kept for results."""
    print(text, file=sys.stderr, flush=True)


def default_root(name: str) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "packager" / name


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Lock `root`, so that two `start`s do not race."""
    root.mkdir(parents=True, exist_ok=True, mode=0o711)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def require_root(command: str) -> None:
    if os.geteuid() != 0:
        raise Failure(f"`{command}` needs root", hint=f"sudo {command}")


def require_programs(programs: Sequence[str], install: str) -> None:
    missing = [program for program in programs if find_program(program) is None]
    if missing:
        raise Failure(f"not installed: {', '.join(missing)}", hint=f"run `{install}`")


def find_program(name: str) -> str | None:
    """Find `name` as root would: daemons live in sbin, which a user's PATH may lack."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")


def apt_install(packages: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Install Debian packages without starting the system services they bring."""
    if find_program("apt-get") is None:
        raise Failure(
            "apt-get is not here: only Debian and its derivatives are installed automatically",
            hint=f"install the equivalents of: {' '.join(packages)}",
        )
    ours = forbid_services(POLICY)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # dpkg may still run for an apt-get that was killed.
    apt = ["apt-get", "-qq", "-y", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
    try:
        # What an installation that was killed has unpacked and not configured.
        run(["dpkg", "--configure", "--pending"], env=environment)
        run([*apt, "--fix-broken", "install"], env=environment)
        run([*apt, "update"], env=environment)
        present = [name for name in optional if _has_candidate(name)]
        install = [*apt, "install", "--no-install-recommends", "--no-upgrade"]
        run([*install, *packages, *present], env=environment)
    finally:
        if ours:
            POLICY.unlink()


def forbid_services(policy: Path) -> bool:
    """Forbid packages to start services; return whether that is ours to allow again.

    One that a killed run left is ours: it would forbid services for ever.
    """
    if policy.exists() and policy.read_text() != FORBIDDEN:
        return False
    temporary = policy.with_name(f"{policy.name}.{os.getpid()}")
    temporary.write_text(FORBIDDEN)
    temporary.chmod(0o755)
    temporary.rename(policy)
    return True


def installed(package: str) -> bool | None:
    """Check whether dpkg has a package unpacked and configured; None where it knows none such."""
    try:
        asked = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    if asked.returncode or asked.stdout in ("", "not-installed", "config-files"):
        return None
    return asked.stdout == "installed"


def _has_candidate(package: str) -> bool:
    answer = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
    return answer.returncode == 0


def run(argv: Sequence[str], env: dict[str, str] | None = None) -> None:
    """Run a command with its output on stderr; a failure names the command."""
    done = subprocess.run(argv, stdout=sys.stderr, env=env, check=False)
    if done.returncode:
        raise Failure(f"`{shlex.join(argv)}` failed with exit status {done.returncode}")


def spawn(argv: Sequence[str], root: Path, name: str, env: dict[str, str] | None = None) -> int:
    """Start a daemon that outlives us; it logs to ROOT/NAME.log."""
    with (root / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=root,
            env=env,
            start_new_session=True,  # a Ctrl-C in the terminal must not reach it
        )
    write_whole(root / f"{name}.pid", f"{process.pid} {start_time(process.pid)}\n")
    return process.pid


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file that another run reads whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    temporary.rename(path)


def read_document(path: Path) -> dict:
    """Read a JSON document of ours; nothing where it is missing or damaged."""
    try:
        document = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def running_with(configuration: Path) -> list[int]:
    """Find the processes that were started with a configuration file."""
    return [pid for pid in all_pids() if str(configuration) in arguments(pid) and is_alive(pid)]


def end_all(root: Path, name: str, configuration: Path, timeout_s: float) -> bool:
    """End the daemon `name` of this root, whether its pid file was written or not."""
    found = {*running_with(configuration), *filter(None, [pid_of(root, name)])} - {os.getpid()}
    for pid in found:
        terminate(pid, timeout_s)
    (root / f"{name}.pid").unlink(missing_ok=True)
    return bool(found)


@contextlib.contextmanager
def ending_with(pid: int | None, script: Path, root: Path) -> Iterator[None]:
    """Start something in `root` that is stopped when the process `pid` ends, however it ends.

    The watcher comes first: it needs the lock to stop anything, and has it when
    a start that is under way was killed.
    """
    if pid is None:
        yield
        return
    end_watcher(root)
    watcher = [sys.executable, str(script), "watch", "--root", str(root), "--end-with", str(pid)]
    spawn(watcher, root, "watcher")
    try:
        yield
    except BaseException:
        end_watcher(root)
        raise


def wait_for_end(pid: int) -> None:
    """Return when a process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with contextlib.closing(select.epoll()) as poll:
        poll.register(handle, select.EPOLLIN)
        while not poll.poll():
            pass
    os.close(handle)


def end_watcher(root: Path) -> None:
    """End the process that waits to stop what runs in `root`, unless that is us."""
    pid = pid_of(root, "watcher")
    if pid and pid != os.getpid():
        terminate(pid, 5)
    (root / "watcher.pid").unlink(missing_ok=True)


def pid_of(root: Path, name: str) -> int | None:
    """The pid of the daemon `name` of this root, if it is alive."""
    try:
        text, started = (root / f"{name}.pid").read_text().split()
        pid = int(text)
    except (FileNotFoundError, ValueError):
        return None
    return pid if is_alive(pid) and start_time(pid) == started else None


def start_time(pid: int) -> str:
    """When `pid` was started, in clock ticks since boot; "" when there is no such process."""
    fields = _stat_fields(pid)
    return fields[19] if fields else ""


def command_line(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def arguments(pid: int) -> list[str]:
    """Return the command line of a process, word by word; nothing when it has ended.

    While the kernel puts a program in place it is empty, as that of a kernel thread, which
    executes no file, always is.
    """
    line = b""
    for _ in range(50):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if line or not Path(f"/proc/{pid}/exe").readlink():
                break
        except OSError:
            return []
        time.sleep(0.002)
    return [word.decode(errors="replace") for word in line.split(b"\0")]


def is_alive(pid: int) -> bool:
    """Whether `pid` runs; a zombie that nobody has reaped yet does not."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    fields = _stat_fields(pid)
    return bool(fields) and fields[0] not in "ZX"


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the program's name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def wait_for(ready: Callable[[], bool], root: Path, name: str, timeout_s: float) -> None:
    """Wait until `ready` says yes; give up at once when the daemon has died."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        ended = pid_of(root, name) is None
        if ended or time.monotonic() > deadline:
            what = "ended while starting" if ended else f"did not answer within {timeout_s:.0f} s"
            tail = log_tail(root, name)
            raise Failure(f"{name} {what}; the end of {root / name}.log:\n{tail}")
        time.sleep(0.1)


def log_tail(root: Path, name: str, lines: int = 25) -> str:
    path = root / f"{name}.log"
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return f"  ({path} does not exist)"
    tail = text.splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in tail) or f"  ({path} is empty)"


def terminate(pid: int, timeout_s: float) -> None:
    """Terminate `pid`, and kill it when it has not ended in time."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while is_alive(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline += timeout_s
            time.sleep(0.05)

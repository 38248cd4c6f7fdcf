"""The process of a server: its lock, its socket, its end."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from packager.addons.server.application import IDLE_S
from packager.addons.server.clients import MAX_BYTES, RunningServer, parse_server, server_text
from packager.addons.server.hosts import Listen
from packager.core.documents import shorten
from packager.core.errors import NotFound, Unavailable, UsageError
from packager.core.files.atomic import explain_disk_errors

GRACE_S = 10.0  # for requests that are being answered, at the end
UNREAD_S = 60.0  # until a connection is closed whose client does not read its answer
LOCK_FILE = "server.lock"
_BACKLOG = 512
_THREADS = 32
_HANDSHAKE_S = 10.0


def server_runs(state: Path, address: str) -> UsageError:
    """Return an error: another server has the state directory."""
    where = f" at {address}" if address else ""
    return UsageError(
        f"a server runs{where} already with the state in {str(state)!r}",
        hint="use that one, or end it first; another directory is chosen with XDG_STATE_HOME",
        code="ServerRuns",
    )


def cannot_listen(message: str, *, hint: str = "") -> Unavailable:
    """Return an error: the address cannot be listened at."""
    return Unavailable(message, hint=hint, code="CannotListen")


def tls_invalid(message: str, *, hint: str = "") -> UsageError:
    """Return an error: certificate and key cannot be used."""
    return UsageError(message, hint=hint, code="TlsInvalid")


@contextmanager
def server_lock(state: Path) -> Iterator[Callable[[RunningServer], None]]:
    """Lock a state directory for one server; raise `UsageError` where another has it.

    Yields what notes the server there, for the next one and for `find_server`.
    """
    path = state / LOCK_FILE
    with explain_disk_errors(path):
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = _told(descriptor)
            raise server_runs(state, shorten(other.url, 80) if other else "") from None

        def note(server: RunningServer) -> None:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, server_text(server).encode(), 0)

        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        yield note
    finally:
        os.close(descriptor)


def find_server(state: Path) -> RunningServer:
    """Return the server that has a state directory; raises `NotFound` where none runs."""
    found = None
    with suppress(OSError):
        descriptor = os.open(state / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found = _told(descriptor)
        finally:
            os.close(descriptor)
    if found is None:
        raise NotFound(
            f"no server runs with the state in {str(state)!r}",
            hint="start one: packager api start",
        )
    return found


def _told(descriptor: int) -> RunningServer | None:
    return parse_server(os.pread(descriptor, MAX_BYTES, 0))


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a certificate with its chain; raises `UsageError`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password OpenSSL would ask for it on the server's terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except FileNotFoundError:
        missing = key if certificate.exists() else certificate
        raise tls_invalid(
            f"there is no file {str(missing)!r}",
            hint="--tls-cert and --tls-key name PEM files of the certificate's chain and its key",
        ) from None
    except ssl.SSLError as error:
        raise tls_invalid(
            f"certificate {str(certificate)!r} and key {str(key)!r} cannot be used: "
            f"{(error.reason or 'they are no PEM files').lower().replace('_', ' ')}",
            hint="give the chain as PEM, and its key as PEM without a passphrase",
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise tls_invalid(
            f"cannot read certificate or key: {reason}", hint="let the server's user read them"
        ) from None
    return context


async def run_server(
    application: web.Application,
    listen: Listen,
    *,
    tls: ssl.SSLContext | None,
    ready: Callable[[Listen], None],
    idle_s: float = IDLE_S,
    grace_s: float = GRACE_S,
    unread_s: float = UNREAD_S,
    stopped: asyncio.Event | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then let requests end; raises `Unavailable`.

    A second signal ends it at once.
    """
    stop = stopped or asyncio.Event()
    loop = asyncio.get_running_loop()
    # Some of what waits in threads waits for a Docker Engine; lists shall not wait behind it.
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="serve"))
    runner = web.AppRunner(
        application,
        access_log=None,
        handle_signals=False,
        logger=_http_log(),
        keepalive_timeout=idle_s,  # also of a connection whose first request never ends
        lingering_time=2.0,
        shutdown_timeout=grace_s,
        auto_decompress=False,  # it takes a body that ends within its packing for a shorter one
    )
    await runner.setup()
    try:
        assert runner.server is not None
        try:
            server = await loop.create_server(
                runner.server,
                listen.host,
                listen.port,
                ssl=tls,
                backlog=_BACKLOG,
                ssl_handshake_timeout=_HANDSHAKE_S if tls else None,
            )
        except OSError as error:
            raise _cannot_listen(listen, error) from error
        for listening in server.sockets:
            _give_up_unread(listening, unread_s)
        try:
            _on_signals(loop, stop)
            ready(Listen(listen.host, server.sockets[0].getsockname()[1]))
            await stop.wait()
        finally:
            server.close()
    finally:
        await runner.cleanup()


class _Faults(logging.Filter):
    """Lets through records that are not errors of a client."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the server's operator should see the record."""
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError | web.RequestPayloadError | OSError)


def _http_log() -> logging.Logger:
    """Return the log of aiohttp, in which clients that send rubbish leave no traces."""
    log = logging.getLogger("packager.addons.server.http")
    if not any(isinstance(one, _Faults) for one in log.filters):
        log.addFilter(_Faults())
    return log


def _give_up_unread(listening: socket.socket, seconds: float) -> None:
    """Set the time after which the system closes connections whose client does not read.

    Accepted sockets inherit it.  Systems without the option keep such connections.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        listening.setsockopt(socket.IPPROTO_TCP, option, int(seconds * 1000))


def _on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    def end() -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # as `nohup` wants it
        with suppress(RuntimeError, ValueError):  # in a thread, as tests have it
            loop.add_signal_handler(number, end)


def _cannot_listen(listen: Listen, error: OSError) -> Unavailable:
    address = listen.url("").removeprefix("://")
    if error.errno == errno.EADDRINUSE:
        return cannot_listen(
            f"another program listens at {address!r}",
            hint=f"choose another port: --listen {listen.host}:0 takes a free one",
        )
    if error.errno == errno.EACCES:
        return cannot_listen(
            f"no permission to listen at {address!r}", hint="take a port from 1024 on"
        )
    reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
    return cannot_listen(
        f"cannot listen at {address!r}: {reason}",
        hint="name an address of this machine; 0.0.0.0 and [::] are all of them",
    )

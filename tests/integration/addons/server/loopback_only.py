"""A server of the API, buckets and a client of them where no other network is.

    MODULE=tests.integration.addons.server.loopback_only
    unshare --net -- python -m $MODULE PLACE OPTIONS PYTHON WORD…

Prints what the client prints, and a last line: the addresses beyond loopback that it tried to
reach, as strace saw its system calls.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.live.api_server import api_process
from tests.support.doubles.s3 import bucket_server

REACHED = re.compile(r"(?:inet_addr\(\"([^\"]+)\"|inet_pton\(AF_INET6, \"([^\"]+)\")")
LOOPBACK = re.compile(r"127\.|::1$|::ffff:127\.")


def main(place: Path, options: list[str], words: list[str]) -> int:
    if os.geteuid() == 0:  # of the network that unshare has made
        subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
    trace = place / "trace"
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with bucket_server() as s3:
        own = {**keys, "AWS_ENDPOINT_URL_S3": s3, "AWS_REGION": "us-east-1"}
        with api_process(place, *options, **own) as server:
            variables = server.printed_variables("--s3", s3)
            environment = {"PATH": "/usr/bin:/bin", "HOME": str(place), **variables}
            watched = [
                "strace",
                "-f",
                "-qq",
                "-e",
                "trace=connect,sendto,sendmsg",
                "-o",
                str(trace),
            ]
            done = subprocess.run([*watched, *words], env=environment, cwd=place)
            log = server.log()
    if done.returncode != 0:
        sys.stderr.write(log[-2000:])
        return done.returncode
    found = {one or six for one, six in REACHED.findall(trace.read_text(errors="replace"))}
    sys.stdout.write(f"{json.dumps(sorted(one for one in found if not LOOPBACK.match(one)))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]))

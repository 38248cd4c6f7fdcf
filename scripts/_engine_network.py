"""The network of a private Docker Engine: its bridge, its addresses and its rules."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import shlex
import subprocess

import _daemons
from _daemons import Failure


def bridges_in(pool: ipaddress.IPv4Network) -> list[str]:
    """Our bridge and those of the networks that users made, which dockerd leaves behind."""
    answer = subprocess.run(
        ["ip", "-json", "address", "show", "type", "bridge"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        link["ifname"]
        for link in json.loads(answer.stdout or "[]")
        if any(ipaddress.ip_address(item["local"]) in pool for item in link.get("addr_info", ()))
    ]


def outbound_rules(name: str, pool: str) -> list[list[str]]:
    """What lets containers out and the answers in: (table, chain, match…) each."""
    ours = ["-m", "comment", "--comment", name]
    return [
        ["nat", "POSTROUTING", "-s", pool, "!", "-d", pool, *ours, "-j", "MASQUERADE"],
        ["filter", "FORWARD", "-s", pool, *ours, "-j", "ACCEPT"],
        [
            "filter",
            "FORWARD",
            "-d",
            pool,
            "-m",
            "conntrack",
            "--ctstate",
            "RELATED,ESTABLISHED",
            *ours,
            "-j",
            "ACCEPT",
        ],
    ]


def iptables(action: str, rule: list[str]) -> None:
    table, chain, *match = rule
    call(["iptables", "--wait", "--table", table, action, chain, *match])


def ip(*arguments: str) -> None:
    call(["ip", *arguments])


def call(argv: list[str]) -> None:
    program = _daemons.find_program(argv[0])
    if program is None:
        raise Failure(f"{argv[0]} is not installed")
    done = subprocess.run([program, *argv[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"`{shlex.join(argv)}`: {done.stderr.strip()}")


def free_pool(name: str) -> ipaddress.IPv4Network:
    """A /16 that no route here uses; the name spreads several engines apart."""
    answer = subprocess.run(
        ["ip", "-json", "route", "show", "table", "all"], capture_output=True, text=True, check=True
    )
    taken = []
    for route in json.loads(answer.stdout or "[]"):
        with contextlib.suppress(ValueError):  # "default" and IPv6
            taken.append(ipaddress.IPv4Network(route["dst"]))
    first = int(name[-2:], 16)
    for step in range(256):
        pool = ipaddress.IPv4Network(f"10.{(first + step) % 256}.0.0/16")
        if not any(pool.overlaps(other) for other in taken):
            return pool
    raise Failure(
        "every 10.N.0.0/16 network is in use here", hint="stop an engine or a VPN and start again"
    )

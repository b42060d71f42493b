"""What a kept session depends on, in one short text: who holds it, with which servers, in which project.

A session that was opened under other circumstances is not gone on with: it would have tools that are not
there any more, or follow rules that were changed. Secrets are no circumstance; of variables and headers only
the names count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from coupler.config.lookup import project_files
from coupler.schema.v1 import McpServer, McpServerHttp, McpServerSse, McpServerStdio

SIZE = 16
"""Bytes of a fingerprint."""


def fingerprint(
    command: str | Sequence[str],
    cwd: str | os.PathLike[str],
    mcp_servers: Iterable[McpServer] = (),
    *,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """The circumstances of a session in this directory; the same text for the same ones."""
    directory = os.path.realpath(cwd)
    circumstances = [
        command if isinstance(command, str) else [*command],
        [_known_of(server) for server in mcp_servers],
        [[file.path, _content(file.path)] for file in project_files(directory, environ)],
    ]
    return blake2b(msgspec.json.encode(circumstances), digest_size=SIZE).hexdigest()


def _known_of(server: McpServer) -> list[Any]:
    match server:
        case McpServerStdio():
            names = sorted(variable.name for variable in server.env)
            return ["stdio", server.name, server.command, [*server.args], names]
        case McpServerHttp() | McpServerSse():
            kind = "http" if isinstance(server, McpServerHttp) else "sse"
            return [kind, server.name, server.url, sorted(header.name for header in server.headers)]
        case _:
            return [type(server).__name__]


def _content(path: str) -> str:
    try:
        return blake2b(Path(path).read_bytes(), digest_size=SIZE).hexdigest()
    except OSError:
        return ""  # whoever loads it will say what is wrong

"""What became of a step: what the journal keeps, and what expressions see as `steps.x`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from coupler.workflow.language.definition import ErrorKind, Json

Status = Literal["success", "failed", "skipped", "denied", "cancelled"]


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a step failed, as `steps.x.error`."""

    kind: ErrorKind
    message: str
    exit_code: int | None = None
    step: str | None = None
    """The path of the step inside of it that failed, if it is made of others."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent has used up, as `steps.x.usage`."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None
    currency: str | None = None
    is_estimated: bool = False


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a step. Texts are what programs wrote, byte for byte (`surrogateescape`)."""

    status: Status
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    text: str | None = None
    output: Json | msgspec.UnsetType = msgspec.UNSET
    usage: Usage | None = None
    error: Failure | None = None
    duration: float = 0.0
    attempts: int = 1
    approved: bool | None = None
    session_id: str | None = None
    agent: str | None = None
    results: tuple[Mapping[str, Result], ...] | None = None
    """Of loops: the steps of each iteration by their ids."""

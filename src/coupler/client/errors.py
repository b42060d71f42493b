"""The one error of this layer: what an agent failed to do, and its last words."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "spawn",
    "initialize",
    "session",
    "prompt",
    "busy",
    "died",
    "overflow",
    "closed",
]


class AgentError(Exception):
    """Something an agent was asked for failed.

    `kind` says what it was; `exit_code` and `stderr` are those of the agent's process, as far as known. If
    the agent answered with an error, `code` and `data` are that error's.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        exit_code: int | None = None,
        stderr: str = "",
        code: int | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message
        self.exit_code = exit_code
        self.stderr = stderr
        self.code = code
        self.data = data

    def __str__(self) -> str:
        lines = [self.message]
        if self.exit_code is not None:
            lines.append(f"exit code: {self.exit_code}")
        if self.stderr.strip():
            lines.append(f"stderr: {self.stderr.strip()[-2000:]}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[type[AgentError], tuple[Kind, str], dict[str, Any]]:
        return type(self), (self.kind, self.message), self.__dict__

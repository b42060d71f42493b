"""The one error of this layer: what an agent failed to do, how far it came, and its last words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from coupler.client.reply import Reply

Kind: TypeAlias = Literal[
    "spawn",
    "initialize",
    "session",
    "prompt",
    "died",
    "output",
    "tool",
    "budget",
    "deadline",
    "refused",
    "cancelled",
    "limit",
    "busy",
    "overflow",
    "closed",
]


class AgentError(Exception):
    """Something an agent was asked for failed.

    `kind` says what it was; `exit_code` and `stderr` are those of the agent's process, as far as known. If
    the agent answered with an error, `code` and `data` are that error's. `reply` is what had come of the
    turn's answer until then.
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
        reply: Reply | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message
        self.exit_code = exit_code
        self.stderr = stderr
        self.code = code
        self.data = data
        self.reply = reply

    def __str__(self) -> str:
        lines = [self.message]
        if self.exit_code is not None:
            lines.append(f"exit code: {self.exit_code}")
        if self.stderr.strip():
            lines.append(f"stderr: {self.stderr.strip()[-2000:]}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[type[AgentError], tuple[Kind, str], dict[str, Any]]:
        return type(self), (self.kind, self.message), self.__dict__

    def explained(self, message: str, exit_code: int | None, stderr: str) -> AgentError:
        """A copy for one who waits, with what is known of the agent's process by now."""
        return AgentError(
            self.kind,
            message,
            exit_code=exit_code,
            stderr=stderr,
            code=self.code,
            data=self.data,
            reply=self.reply,
        )


class EndTurn(Exception):  # noqa: N818 - it is no failure: a tool has what the prompt was for
    """Raised by a tool to end the turn: the prompt raises it again, after everything was received."""

    def __init__(self, payload: Any = None) -> None:
        super().__init__(payload)
        self.payload = payload

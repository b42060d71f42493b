"""Why a program could not be started."""

from typing import Literal

SpawnErrorKind = Literal[
    "bad_command",
    "bad_environment",
    "missing_directory",
    "missing_program",
    "not_executable",
    "refused",
]


class SpawnError(Exception):
    """A program could not be started; the message says what to do about it."""

    def __init__(self, kind: SpawnErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: SpawnErrorKind = kind
        self.message = message

    def __reduce__(self) -> tuple[type["SpawnError"], tuple[SpawnErrorKind, str]]:
        return SpawnError, (self.kind, self.message)

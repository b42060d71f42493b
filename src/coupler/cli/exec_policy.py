"""The permission policy of `coupler exec`: what its options say, and the terminal where they say to ask."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from coupler.cli.exec_options import ExecOptions, refuse
from coupler.cli.exec_question import Asker
from coupler.cli.policy_choice import policy_of
from coupler.client.policy import Decide, Policy


class Permitting:
    """Holds the terminal for as long as questions may come."""

    def __init__(self, options: ExecOptions) -> None:
        self._asker = Asker.at_terminal() if options.permissions == "ask" else None
        self.policy = self._policy(options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._asker is not None:
            self._asker.close()

    def _policy(self, options: ExecOptions) -> Policy:
        asked: Decide | None = None if self._asker is None else self._asker.decide
        try:
            return policy_of(options.permissions, options.allow, options.deny, asked)
        except ValueError as error:
            refuse(str(error))

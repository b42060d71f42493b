"""The answers that a user gave for good: for this session in memory, for this project in the store."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from typing import Literal, Protocol

from coupler.permission.rule import Rule
from coupler.permission.scope import Lifetime, Scope
from coupler.store.choices import ChoiceRecord

Answer = Literal["allow", "deny"]

ORIGINS: dict[Lifetime, str] = {
    "session": "what you chose in this session",
    "project": "what you chose in this project",
}


class ChoiceStore(Protocol):
    """Where the project's choices last; `coupler.store.store.Store` is one."""

    async def choices(self, project: str) -> tuple[ChoiceRecord, ...]: ...

    async def remember_choices(self, *records: ChoiceRecord) -> None: ...


class Choices:
    """The remembered answers that count for one session. Each session has its own; a sibling sees none of
    what was chosen for this one."""

    def __init__(self, project: str, store: ChoiceStore | None = None) -> None:
        self._project = os.path.realpath(project)
        # A directory whose name is no text cannot be kept in the store.
        self._store = store if _is_text(self._project) else None
        self._session: dict[str, Rule] = {}
        self._kept: tuple[Rule, ...] = ()

    @property
    def session(self) -> tuple[Rule, ...]:
        """What holds until this session closes."""
        return tuple(self._session.values())

    @property
    def kept(self) -> tuple[Rule, ...]:
        """What holds in this project, as of the last refresh."""
        return self._kept

    @property
    def can_last(self) -> bool:
        """Whether an answer for the project can outlast the session."""
        return self._store is not None

    async def refresh(self) -> None:
        """Read what is kept anew: another session may have added to it, or its user withdrawn something."""
        if self._store is not None:
            self._kept = tuple(_rules(await self._store.choices(self._project)))

    async def remember(self, answer: Answer, scopes: Iterable[Scope]) -> None:
        """Keep an answer. Without a store, what should last for the project lasts for the session."""
        records: list[ChoiceRecord] = []
        for scope in scopes:
            if scope.lifetime == "project" and self._store is not None:
                records.append(ChoiceRecord(self._project, answer, scope.subject, scope.pattern))
            else:
                rule = Rule.parse(answer, scope.rule_text, ORIGINS["session"])
                self._session[scope.rule_text] = rule
        if records and self._store is not None:
            await self._store.remember_choices(*records)
            await self.refresh()

    def close(self) -> None:
        """The session ends, and what was chosen for it."""
        self._session.clear()


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rules(records: Iterable[ChoiceRecord]) -> Iterable[Rule]:
    """What is kept, as rules. A row that cannot be read any more allows nothing and is passed over."""
    for record in records:
        text = f"{record.subject}({record.pattern})" if record.pattern else record.subject
        try:
            yield Rule.parse(record.effect, text, ORIGINS["project"])
        except ValueError:
            continue

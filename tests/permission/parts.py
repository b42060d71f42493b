"""What tests of permissions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coupler.permission.action import Action
from coupler.permission.decision import Permissions, Verdict
from coupler.permission.offers import Choices
from coupler.permission.rules import Rule
from coupler.store.choices import ChoiceRecord


def rules(effect: str, texts: Sequence[str], origin: str = "user") -> list[Rule]:
    return [Rule.parse(effect, text, origin) for text in texts]


class EmptyStore:
    """A store in which nothing was chosen, and nothing is kept."""

    async def choices(self, project: str) -> tuple[ChoiceRecord, ...]:
        return ()

    async def remember_choices(self, *records: ChoiceRecord) -> None:
        pass


class Bench:
    """A project, in which actions are judged by given rules."""

    def __init__(self, project: Path) -> None:
        self.project = project

    def permissions(
        self, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = (), **options: Any
    ) -> Permissions:
        given = [*rules("allow", allow), *rules("ask", ask), *rules("deny", deny)]
        choices = options.get("choices") or Choices(str(self.project), EmptyStore())
        return Permissions([*given, *options.get("more", ())], choices, str(self.project))

    def action(self, kind: str = "other", **fields: Any) -> Action:
        whole = {"cwd": str(self.project), "roots": (str(self.project),), **fields}
        return Action(kind=kind, **whole)

    def judge(
        self,
        action: Action,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        **options: Any,
    ) -> Verdict:
        return self.permissions(allow, ask, deny, **options).judge(action)

    def run(self, command: str | tuple[str, ...], *allow: str, deny: Sequence[str] = ()) -> Verdict:
        return self.judge(self.action("execute", command=command), allow, deny=deny)

    def touch(self, kind: str, path: str, *allow: str, deny: Sequence[str] = ()) -> Verdict:
        """Judge a path, which is the project's unless it is absolute."""
        whole = path if path.startswith("/") else f"{self.project}/{path}"
        return self.judge(self.action(kind, paths=(whole,)), allow, deny=deny)

    def fetch(self, url: str, *allow: str, deny: Sequence[str] = ()) -> Verdict:
        return self.judge(self.action("fetch", urls=(url,)), allow, deny=deny)

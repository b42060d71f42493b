"""What a doctor found out, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "note", "problem"]
"""As it should be; worth knowing; something that does not work, or disturbs."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    about: str
    level: Level
    sentence: str
    remedy: str | None = None


@dataclass(kw_only=True)
class Findings:
    """What was found, in the order in which it was."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is among them that does not work."""
        return not any(finding.level == "problem" for finding in self.findings)

    def ok(self, about: str, sentence: str) -> None:
        """It is as it should be."""
        self.findings.append(Finding(about, "ok", sentence))

    def note(self, about: str, sentence: str, remedy: str | None = None) -> None:
        """It is worth knowing."""
        self.findings.append(Finding(about, "note", sentence, remedy))

    def problem(self, about: str, sentence: str, remedy: str) -> None:
        """It is not as it should be."""
        self.findings.append(Finding(about, "problem", sentence, remedy))

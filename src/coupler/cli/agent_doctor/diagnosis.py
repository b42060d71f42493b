"""Everything that was found out about one agent."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from coupler.cli.doctor.findings import Finding


@dataclass
class Diagnosis:
    """Everything that was found out about one agent, in the order in which it was."""

    subject: str
    command: list[str]
    findings: list[Finding] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each part of the start took."""
    agent: dict[str, Any] | None = None
    """What it calls itself."""
    capabilities: dict[str, Any] = field(default_factory=dict)
    auth_methods: list[dict[str, Any]] = field(default_factory=list)
    stderr: str = ""

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was found that breaks or disturbs clients."""
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

    def as_object(self) -> dict[str, Any]:
        """All of it for programs."""
        return {**asdict(self), "is_healthy": self.is_healthy}

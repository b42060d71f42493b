"""Everything that was found out about one agent."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from coupler.cli.doctor.findings import Findings


@dataclass
class Diagnosis(Findings):
    """Everything that was found out about one agent, in the order in which it was."""

    subject: str
    command: list[str]
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each part of the start took."""
    agent: dict[str, Any] | None = None
    """What it calls itself."""
    capabilities: dict[str, Any] = field(default_factory=dict)
    auth_methods: list[dict[str, Any]] = field(default_factory=list)
    stderr: str = ""

    def as_object(self) -> dict[str, Any]:
        """All of it for programs."""
        return {**asdict(self), "is_healthy": self.is_healthy}

"""A part of the page: what one examiner found, which another thread may read before it is done."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from coupler.cli.doctor.findings import Findings


@dataclass(kw_only=True)
class Section(Findings):
    """What was found about one subject."""

    name: str
    """For programs, and of the module that examines it."""
    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    """The same for programs, as far as they need more than sentences."""
    seconds: float | None = None
    """How long it took; None if it is not over."""
    began: float = field(default_factory=time.monotonic)
    _over: threading.Event = field(default_factory=threading.Event, repr=False)

    def close(self) -> None:
        """Nothing will be added: said before what takes time is tidied up, which nobody has to wait for."""
        if not self._over.is_set():
            self.seconds = time.monotonic() - self.began
            self._over.set()

    def wait(self, seconds: float) -> bool:
        """Whether it is over within this time."""
        return self._over.wait(max(0.0, seconds))

    def as_object(self) -> dict[str, Any]:
        """All of it for programs."""
        return {
            "name": self.name,
            "title": self.title,
            "is_healthy": self.is_healthy,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "findings": [
                {
                    "about": each.about,
                    "level": each.level,
                    "sentence": each.sentence,
                    "remedy": each.remedy,
                }
                for each in [*self.findings]
            ],
            "facts": dict(self.facts),
        }

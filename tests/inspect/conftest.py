"""What the tests of the conformance kit share."""

from __future__ import annotations

import pytest


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No coverage of the processes that a test starts: measuring hundreds of little ones takes minutes."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    monkeypatch.delenv("COVERAGE_PROCESS_START", raising=False)

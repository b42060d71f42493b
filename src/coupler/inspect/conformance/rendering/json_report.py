"""A report as JSON, as docs/check.md describes it. Fields may be added; none changes its meaning."""

from __future__ import annotations

import json
from typing import Any

from coupler.__about__ import __version__
from coupler.inspect.conformance.rendering.wording import LEVEL_WORDS, standing
from coupler.inspect.conformance.report import Report, Result

FORMAT = "coupler.report"
FORMAT_VERSION = 1


def to_json(report: Report) -> str:
    """The whole report, in ASCII: so it survives every pipe and every log."""
    document = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "coupler": __version__,
        "side": report.side,
        "subject": report.subject,
        "passes": report.passes,
        "verdict": report.verdict(),
        "seconds": round(report.seconds, 3),
        "counts": report.count(),
        "results": [_result(result) for result in report.results],
    }
    return json.dumps(document, indent=2) + "\n"


def _result(result: Result) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": result.assertion.id,
        "level": LEVEL_WORDS[result.level],
        "sentence": result.assertion.sentence,
        "section": result.assertion.section,
        "outcome": standing(result),
        "message": result.message,
        "notes": [*result.notes],
        "seconds": round(result.seconds, 3),
    }
    if result.outcome == "failed":
        described["frames"] = [
            {"at": round(frame.at, 6), "from": frame.sender, "text": frame.text, "cause": frame.is_cause}
            for frame in result.frames
        ]
        described["stderr"] = result.stderr
    return described

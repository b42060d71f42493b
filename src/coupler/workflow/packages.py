"""The packages that workflows need: they come with the extra `workflows`, and may not be there."""

from __future__ import annotations

from coupler.runtime.extras import need


def need_packages() -> None:
    """Import them, before anything is read that could not be run; raises MissingExtraError."""
    for module in ("yaml", "jinja2"):
        need(module, extra="workflows", feature="Running a workflow")

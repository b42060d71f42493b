"""Files that a workflow names: scripts, prompts and schemas, relative to where the workflow itself is."""

from __future__ import annotations

from pathlib import Path

from coupler.workflow.errors import StepError, WorkflowError
from coupler.workflow.language.reading import load


def read_neighbour(name: str, workflow_file: str) -> str:
    """The text of a file beside a workflow, byte for byte (`surrogateescape`); raises `StepError`."""
    try:
        content = load(str(Path(workflow_file).parent / name))
    except (WorkflowError, ValueError) as error:
        raise StepError("not_found", f"{error}.") from None
    return content.decode("utf-8", "surrogateescape")

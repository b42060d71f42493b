"""How findings about an agent are put into words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coupler.cli.agent_doctor.diagnosis import Diagnosis
from coupler.conformance.candidate import describe
from coupler.conformance.peers import ScriptError
from coupler.conformance.reading import part
from coupler.conformance.scripted_client import Answer

LONGEST_SENTENCE = 400
"""Characters of what an agent says about an error."""


def silence_remedy(diagnosis: Diagnosis, error: ScriptError) -> str:
    """What to do about an agent that did not answer."""
    match error.kind:
        case "spawn":
            return "install it, or give the path of its program"
        case "gone":
            return "read its stderr; started in a terminal, the same command may say more"
        case "flood":
            return "tell its makers: it writes without end"
    if not diagnosis.findings:
        return "see whether the command starts an ACP agent at all: many need a word such as acp or --acp"
    return "give it more time with --timeout, or read its stderr"


def refusal_in_words(answer: Answer) -> str:
    """An answer that is not the one that was wanted: the agent's own sentence, if it has one."""
    message = part(answer.error, "message")
    if not isinstance(message, str) or not message:
        return describe(answer)
    return f"the error {answer.code}: {message[:LONGEST_SENTENCE]}"


def self_named(diagnosis: Diagnosis) -> str:
    """What the agent calls itself, and its version."""
    said = diagnosis.agent
    if said is None:
        return "it does not say its name and version"
    return f"{said.get('title') or said.get('name')} {said.get('version', '')}".strip()


def capabilities_in_words(diagnosis: Diagnosis) -> str:
    """What it says it can do."""
    names = sorted(_true_names(diagnosis.capabilities))
    return f"with {', '.join(names)}" if names else "with no capabilities beyond the basic ones"


def _true_names(capabilities: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in capabilities.items():
        if value is True:
            found.append(name)
        elif isinstance(value, dict) and name.endswith("Capabilities"):
            inner = [each for each, said in value.items() if said is True or isinstance(said, dict)]
            short = name.removesuffix("Capabilities")
            found += [f"{short}.{each}" for each in inner if not each.startswith("_")]
    return found


def duration(seconds: float) -> str:
    """A time for people."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

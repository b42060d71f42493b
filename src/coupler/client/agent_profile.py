"""Applies a table `[agents.NAME]` of `coupler.toml` to the sessions of an agent that is driven by its name.

`connect` makes an `AgentProfile` of the table, and the agent's sessions keep to it whoever drives them: its
rules hold besides the session's policy, also for what the agent does through us without asking; its model,
mode and options are set in new sessions; and its instructions and files go before their first prompt.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coupler.client.errors import AgentError
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from coupler.client.remote import OpeningOptions
    from coupler.config.agent_tables import AgentTable
    from coupler.permission.rules import Rule

LONGEST_FILE = 100_000
"""Characters of a skill or context file that an agent is given."""

INSTRUCTIONS = "[Instructions that hold for this whole conversation:]"
END_OF_INSTRUCTIONS = "[End of the instructions. The user's message follows.]"


class AgentProfile:
    """The settings that one table has for the sessions of its agent. Raises AgentError for a wrong rule."""

    def __init__(self, table: AgentTable) -> None:
        self.table = table
        self.place = f"[agents.{table.name}] in {table.origin}"
        """The place of the table, for messages."""
        self.rules = _rules_of(table, self.place)
        """The rules that it adds to the policy of a session."""

    def completed(self, given: OpeningOptions) -> OpeningOptions:
        """Return the options of a new session with what the table sets; those that are given win."""
        table, options = self.table, given.copy()
        if table.model is not None:
            options.setdefault("model", table.model)
        if table.mode is not None:
            options.setdefault("mode", table.mode)
        if table.options:
            own = {
                name: value if isinstance(value, bool) else str(value)
                for name, value in table.options.items()
            }
            options["options"] = {**own, **given.get("options", {})}
        return options

    async def preface(self) -> str | None:
        """Return the text that goes before the first prompt of a session; None if there is none."""
        return await in_thread(self._preface)

    def system_prompt(self) -> str | None:
        """Return the instructions with the skills, for agents that take them at their start. Reads files."""
        table = self.table
        return "\n\n".join(filter(None, [table.system, *map(self._text_of, table.skills)])) or None

    def _preface(self) -> str | None:
        system = self.system_prompt()
        parts = [] if system is None else [INSTRUCTIONS, system, END_OF_INSTRUCTIONS]
        parts += [file_in_prompt(Path(path).name, self._text_of(path)) for path in self.table.context]
        return "\n\n".join(parts) or None

    def _text_of(self, path: str) -> str:
        try:
            return text_of_file(path)
        except OSError as error:
            message = f"{path}, which {self.place} names, cannot be read: {error.strerror}"
            raise AgentError("session", message) from None


def _rules_of(table: AgentTable, place: str) -> tuple[Rule, ...]:
    if not table.allow and not table.deny:
        return ()
    # Imported on use: most agents have no rules of their own.
    from coupler.permission.rules import Rule

    written = {"allow": table.allow, "deny": table.deny}
    try:
        return tuple(Rule.parse(effect, text, place) for effect, texts in written.items() for text in texts)
    except ValueError as error:
        raise AgentError("spawn", str(error)) from None


def with_instructions(system: str, prompt: str) -> str:
    """Put instructions before a prompt, for agents that take them in no other way."""
    return "\n\n".join([INSTRUCTIONS, system, END_OF_INSTRUCTIONS, prompt])


def file_in_prompt(name: str, text: str) -> str:
    """Return the text of a file as it stands before a prompt."""
    return f"[The file {name}:]\n\n{text.strip()}\n\n[End of {name}.]"


def text_of_file(path: str) -> str:
    """Read a skill or context file, as far as an agent is given it."""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        return file.read(LONGEST_FILE).strip()

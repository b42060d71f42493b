"""The tool `remember`: writes entries into the memory of the project, each of them shown and asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from coupler.coder.memory import (
    LONGEST_ENTRY,
    checked_entry,
    memory_file,
    with_entry,
    with_replacement,
    without_entry,
)
from coupler.langchain.editor_tools.tool_use import running_prompt, session_tool, tool_use
from coupler.langchain.editor_tools.writing import change_file, file_alone
from coupler.langchain.presentation import title_with_text
from coupler.redaction.sources import has_secret

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from coupler.agent.session import Session

NO_SECRETS = (
    "there is a secret in this, and the memory is read by models and people: say where the secret is kept, "
    "and leave the secret itself out"
)


def memory_tools(session: Session | None = None) -> list[BaseTool]:
    """Return the tool to remember something; given a session, it works in no other."""
    return [session_tool(remember, "edit", session, title=title_with_text("Remember:", "entry"))]


async def remember(
    entry: Annotated[
        str,
        f"One fact in one sentence that is understood without this conversation, at most {LONGEST_ENTRY} "
        "characters. To forget: the entry to remove.",
    ],
    action: Annotated[
        Literal["add", "replace", "forget"], "Add an entry, replace another one by it, or remove it."
    ] = "add",
    old_entry: Annotated[str | None, "To replace: the entry that it takes the place of."] = None,
) -> tuple[str, dict[str, Any]]:
    """Keep a fact about this project for later sessions, in its memory file. The user is asked each time.

    Use it when the user asks you to remember or forget something, or corrects you in a way that holds for
    later work as well. Not for what can be read in the project, for the state of the current task, or for
    anything secret. Replace an entry that is not right any more.
    """
    session = running_prompt().session
    path = memory_file(session.cwd)
    new = checked_entry(entry)
    if action == "replace" and not (old_entry or "").strip():
        raise ValueError("old_entry is missing: give the entry that is to be replaced")
    if action != "forget" and (session.secrets.mask(new) != new or has_secret(new)):
        raise ValueError(NO_SECRETS)
    async with tool_use("Remember:", "edit", path, about=new) as use, file_alone(use, path):
        files = use.prompt.turn.files
        before = await files.read(path) if await files.exists(path) else None
        match action:
            case "add":
                after = with_entry(before, new)
            case "replace":
                after = with_replacement(before, checked_entry(old_entry or ""), new)
            case "forget":
                after = without_entry(before, new)
        use.works_in((path, None))
        await change_file(use, path, before, after)
        done = {"add": "added", "replace": "replaced", "forget": "forgotten"}[action]
        return f"{done.capitalize()}; it counts from the next prompt on.", {"path": path, "action": action}

"""Tools that work where the user works: files as the editor has them, commands in its terminals.

Where the client offers neither, the disk and process groups take their places. Each use is judged with its
exact path or command by the permission engine, shows what it does in the model's own tool call, and answers
with an error that the model can act on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.tools import BaseTool

from coupler.bridges.langchain.editor.command import run_command
from coupler.bridges.langchain.editor.listing import list_directory, listing_title
from coupler.bridges.langchain.editor.reading import read_file, reading_title
from coupler.bridges.langchain.editor.searching import find_files, finding_title, search, searching_title
from coupler.bridges.langchain.editor.tool_use import session_tool
from coupler.bridges.langchain.editor.writing import edit_file, write_file
from coupler.bridges.langchain.tool_calls.own_title import naming_path, naming_text

if TYPE_CHECKING:
    from coupler.agent.session import Session


def editor_tools(session: Session | None = None) -> list[BaseTool]:
    """Tools to read, write, edit, list, find and search files and to run commands.

    They work in the session whose prompt is being answered; given one, they work in no other.
    """
    return [
        *file_tools(session),
        session_tool(run_command, "execute", session, title=naming_text("Run", "command")),
    ]


def file_tools(session: Session | None = None) -> list[BaseTool]:
    """Those of them that work on files."""
    return [
        session_tool(read_file, "read", session, title=reading_title),
        session_tool(write_file, "edit", session, title=naming_path("Write")),
        session_tool(edit_file, "edit", session, title=naming_path("Edit")),
        session_tool(list_directory, "read", session, title=listing_title),
        session_tool(find_files, "search", session, title=finding_title),
        session_tool(search, "search", session, title=searching_title),
    ]

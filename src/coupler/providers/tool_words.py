"""What agents call their tools and arguments, in the words that editors know."""

from __future__ import annotations

from typing import Any

from coupler.providers.loose import Loose
from coupler.schema.v1 import Diff, ToolKind

LONGEST_TITLE = 120
"""Characters of a tool call's title."""

_KINDS: dict[ToolKind, str] = {
    "read": "read view read_file read_many_files notebookread show_file list_mcp_resources read_mcp_resource",
    "edit": "edit multiedit write write_file replace create apply_patch patch str_replace_editor notebookedit"
    " file_change edit_file smart_edit",
    "search": "grep glob ls list list_directory search_file_content grep_search rg find codesearch",
    "execute": "bash shell run_shell_command command_execution powershell exec exec_command write_bash"
    " bashoutput read_bash stop_bash killshell local_shell",
    "fetch": "webfetch web_fetch websearch web_search google_web_search",
    "think": "task agent todowrite todo_write write_todos update_plan think report_intent todoread"
    " collab_tool_call",
    "switch_mode": "exitplanmode enterplanmode exit_plan_mode enter_plan_mode plan_enter plan_exit",
}
_KIND_OF: dict[str, ToolKind] = {name: kind for kind, names in _KINDS.items() for name in names.split()}

_PATHS = ("file_path", "filePath", "path", "absolute_path", "notebook_path")
_TELLING = ("command", "cmd", *_PATHS, "pattern", "query", "url", "description", "prompt", "dir_path")
_OLD = ("old_string", "oldString", "old_str")
_NEW = ("new_string", "newString", "new_str")
_WHOLE = ("content", "file_text")


def tool_kind(name: str) -> ToolKind:
    """What kind of tool this is, as far as its name tells."""
    return _KIND_OF.get(name.lower(), "other")


def title_of(name: str, arguments: Any) -> str:
    """The tool's name with its most telling argument, on one line."""
    told = Loose(arguments)
    telling = next((" ".join(text.split()) for key in _TELLING if (text := _told(told, key))), "")
    title = f"{name}: {telling}" if name and telling else telling or name or "tool"
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"


def paths_in(arguments: Any) -> list[str]:
    """The files that a call names."""
    path = Loose(arguments).text(*_PATHS)
    return [path] if path else []


def diffs_in(name: str, arguments: Any) -> list[Diff]:
    """The changes that a call of an editing tool asks for."""
    told = Loose(arguments)
    path = told.text(*_PATHS)
    if tool_kind(name) != "edit" or not path:
        return []
    edits = told.objects("edits") or [told]
    return [diff for edit in edits if (diff := _diff(path, edit)) is not None]


def _diff(path: str, edit: Loose) -> Diff | None:
    old, new = edit.raw(*_OLD), edit.raw(*_NEW)
    if isinstance(new, str) and isinstance(old, str):
        return Diff(path, new, old)
    whole = edit.raw(*_WHOLE)
    return Diff(path, whole) if isinstance(whole, str) else None


def _told(arguments: Loose, key: str) -> str:
    value = arguments.raw(key)
    if isinstance(value, list):
        return " ".join(word for word in value if isinstance(word, str))
    return value if isinstance(value, str) else ""

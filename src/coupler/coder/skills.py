"""Finds skills: folders with a SKILL.md that describes a kind of task, read when they are needed.

The model is told their names and descriptions; `use_skill` gives it the rest. They are looked for in the
project, from where the session works up to the repository's root, among the user's own, and where a profile
says. The first of a name counts. A broken one is noted and left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime

from coupler.agent.agent import Command
from coupler.agent.session import Session
from coupler.coder.commands import typed_command
from coupler.coder.instructions import (
    InstructionDirectory,
    InstructionReader,
    project_directories,
    text_on_disk,
    user_directory,
)
from coupler.coder.tools.outputs import fenced, one_line, truncated
from coupler.langchain.current import current
from coupler.langchain.editor_tools.tool_use import running_prompt, session_tool, tool_use
from coupler.langchain.presentation import title_with_text
from coupler.runtime.directories import home_directory
from coupler.runtime.formatting import did_you_mean

SKILL_FILE = "SKILL.md"
FOLDERS = (".coupler/skills", ".agents/skills", ".claude/skills")
OWN_FOLDERS = (".agents/skills", ".claude/skills")
"""Folders of skills below the user's home, beside `skills` in Coupler's own directory."""

LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1024
LONGEST_BODY = 60_000
"""Characters that a model gets of one skill."""

MOST_SKILLS = 100
LONGEST_LIST = 16_000
"""Characters that all descriptions may fill; if they are more, each is cut."""

MOST_FILES = 200
"""Files of a skill's folder that are named."""

COMMAND_LEAD = (
    "The user has asked for this skill by its command: do as it says, with what stands behind the command."
)

OWN_LEAD = "This is what the command means; what the user has written behind it goes before it."

ARGUMENTS = "$ARGUMENTS"
"""Placeholder in skills for the text after the slash command."""

_NAME = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")
_YES, _NO = ("true", "yes", "on"), ("false", "no", "off")

_FENCE = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?")
_BLOCK = re.compile(r"([>|])[+-]?\d?[+-]?(?:[ \t]+#.*)?")
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')(?:[ \t]+#.*)?""")
_ESCAPED = re.compile(r"\\(.)")


class Skill(NamedTuple):
    """A skill: one folder, or one file of a profile."""

    name: str
    description: str
    path: str
    bounds: str | None
    """The directory that it must not lead out of; None for what is the user's own."""
    hint: str | None = None
    is_for_model: bool = True
    is_for_user: bool = True

    @property
    def folder(self) -> str:
        """The directory whose files belong to it."""
        return str(Path(self.path).parent)


class Skills:
    """The skills of one session."""

    def __init__(self, session: Session, of_profile: Sequence[str] = ()) -> None:
        self._session = session
        self._of_profile = of_profile
        self._found: dict[str, Skill] = {}
        self.notes: list[str] = []
        """Problems with skills that are broken or hidden by others."""

    def look(self) -> None:
        """Search for skills. This blocks: call it in a thread."""
        found: dict[str, Skill] = {}
        notes: list[str] = []
        seen: set[str] = set()
        for path, bounds in self._files():
            real = os.path.realpath(path)
            if real in seen or len(found) == MOST_SKILLS:
                continue
            seen.add(real)
            skill = _skill(path, bounds, notes)
            if skill is not None and skill.name in found:
                notes.append(f"{path} is not used: {found[skill.name].path} has the same name")
            elif skill is not None:
                found[skill.name] = skill
        self._found, self.notes = found, notes

    def named(self, name: str) -> Skill:
        """The skill of this name."""
        if name in self._found:
            return self._found[name]
        known = did_you_mean(name, self._found, f"there are {', '.join(self._found) or 'none'}")
        raise ValueError(f"there is no skill {name!r:.100}: {known}")

    def commands(self, taken: Container[str] = ()) -> list[Command]:
        """A slash command for each, but for those whose names are taken."""
        return [
            Command(skill.name, one_line(skill.description, 200), hint=skill.hint)
            for skill in self._found.values()
            if skill.is_for_user and skill.name not in taken
        ]

    def as_text(self) -> str:
        """The list of them for the model; empty if there are none."""
        offered = [skill for skill in self._found.values() if skill.is_for_model]
        longest = LONGEST_DESCRIPTION
        if sum(len(skill.description) for skill in offered) > LONGEST_LIST:
            longest = max(LONGEST_LIST // len(offered), 60)
        return "\n".join(f"- {skill.name}: {one_line(skill.description, longest)}" for skill in offered)

    def _files(self) -> Iterator[tuple[str, str | None]]:
        """Yield all paths that may be skills, those of highest priority first."""
        for path in self._of_profile:
            yield from ((each, None) for each in _of_profile(Path(path)))
        environ, session = self._session.env, self._session
        for source in reversed(project_directories(session.cwd, session.roots, environ)):
            for folder in FOLDERS:
                yield from ((path, source.bounds) for path in _in_folder(Path(source.directory, folder)))
        yield from ((path, None) for folder in _own_folders(environ) for path in _in_folder(folder))


def skill_tools(skills: Skills) -> list[BaseTool]:
    """The tool with which a model reads a skill."""

    async def use_skill(name: Annotated[str, "The name of the skill, as it is listed."]) -> str:
        """Read a skill: how a kind of task is done here, and which files help with it.

        Use it before you begin with a task that the description of a skill fits. Its files can be read with
        read_file and run with run_command by the paths that are given.
        """
        skill = skills.named(name)
        session = running_prompt().session
        session.readable_places.add(skill.folder)
        async with tool_use("Use skill", "read", skill.path, about=skill.name) as use:
            await use.ask()
            use.works_in((skill.path, None))
            return await skill_text(skill, InstructionReader(use.prompt.turn))

    return [session_tool(use_skill, "read", title=title_with_text("Use skill", "name"))]


class SkillCommands(AgentMiddleware[Any, Any, Any]):
    """Adds a skill to a prompt that names it by its slash command: `/name what to do`.

    `prompts` are what the model is told by commands of the coder's own, which go first.
    """

    def __init__(self, skills: Skills, prompts: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__()
        self._skills = skills
        self._prompts = prompts

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Put the skill behind what the user has typed."""
        served = current()
        if served is None or served.call_id is not None:
            return None
        own = [Command(name, name) for name in self._prompts]
        commands = [*own, *self._skills.commands(taken=self._prompts)]
        typed = typed_command(served.turn, commands)
        prompt = state["messages"][-1]
        if typed is None or not isinstance(prompt, HumanMessage):
            return None
        if typed.name in self._prompts:
            text = f"{OWN_LEAD}\n\n{self._prompts[typed.name]}"
        else:
            skill = self._skills.named(typed.name)
            served.session.readable_places.add(skill.folder)
            body = await skill_text(skill, InstructionReader(served.turn))
            text = f"{COMMAND_LEAD}\n\n{body.replace(ARGUMENTS, typed.arguments.strip())}"
        content: Any = prompt.content
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        whole = [*blocks, {"type": "text", "text": text}]
        return {"messages": [prompt.model_copy(update={"content": whole})]}


async def skill_text(skill: Skill, reader: InstructionReader) -> str:
    """Return the skill as a model gets it."""
    folder, name = os.path.split(skill.path)
    text = await reader.read(InstructionDirectory(folder, skill.bounds), name)
    if text is None:
        raise ValueError("; ".join(reader.notes) or f"{skill.path} is not there any more")
    document = read_document(text) or SkillDocument({}, text)
    shown = fenced("skill", truncated(document.body, LONGEST_BODY), name=skill.name, folder=skill.folder)
    files = [*_files_of(skill)]
    if not files:
        return shown
    more = ["… and more"] if len(files) > MOST_FILES else []
    return "\n".join([shown, f"Files in {skill.folder}:", *files[:MOST_FILES], *more])


def _skill(path: str, bounds: str | None, notes: list[str]) -> Skill | None:
    try:
        document = read_document(text_on_disk(path, bounds))
    except (OSError, ValueError) as error:
        notes.append(f"{path} is not used: {error}")
        return None
    is_plain = Path(path).name != SKILL_FILE
    usual = Path(path).stem.lower() if is_plain else Path(path).parent.name
    if document is None and not is_plain:
        notes.append(f"{path} is not used: it has to begin with name and description between lines of ---")
        return None
    fields = document.fields if document is not None else {}
    name = fields.get("name", usual)
    description = fields.get("description", f"Instructions in {Path(path).name}" if is_plain else "")
    problem = _problem(name, description)
    if problem is not None:
        notes.append(f"{path} is not used: {problem}")
        return None
    return Skill(
        name,
        one_line(description, LONGEST_DESCRIPTION),
        path,
        bounds,
        hint=one_line(fields["argument-hint"], 100) if fields.get("argument-hint") else None,
        is_for_model=fields.get("disable-model-invocation", "").lower() not in _YES,
        is_for_user=fields.get("user-invocable", "").lower() not in _NO,
    )


def _problem(name: str, description: str) -> str | None:
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        return f"its name {name!r:.80} has to be of small letters, digits and '-', at most {LONGEST_NAME}"
    return None if description.strip() else "it has no description"


def _of_profile(path: Path) -> Iterable[str]:
    """Return the skills that a profile names: one, a folder of them, or a file with instructions."""
    if not path.is_dir():
        return [str(path)]
    own = path / SKILL_FILE
    return [str(own)] if own.is_file() else _in_folder(path)


def _own_folders(environ: Mapping[str, str]) -> Iterator[Path]:
    source, home = user_directory(environ), home_directory(environ)
    if source is not None:
        yield Path(source.directory, "skills")
    if home is not None:
        yield from (Path(home, folder) for folder in OWN_FOLDERS)


def _in_folder(folder: Path) -> list[str]:
    try:
        return sorted(
            str(each / SKILL_FILE) for each in folder.iterdir() if os.path.lexists(each / SKILL_FILE)
        )
    except OSError:
        return []


def _files_of(skill: Skill) -> Iterator[str]:
    """The other files of the folder, without hidden ones; links to directories are not followed."""
    if Path(skill.path).name != SKILL_FILE:
        return
    count = 0
    for parent, directories, files in os.walk(skill.folder):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(files):
            path = str(Path(parent, name))
            if path != skill.path and not name.startswith("."):
                yield one_line(os.path.relpath(path, skill.folder), 300)
                count += 1
                if count > MOST_FILES:
                    return


class SkillDocument(NamedTuple):
    """A SKILL.md with its front matter.

    Front matter is a few lines of YAML, of which texts are all that is wanted. It is read without a parser of
    YAML: many that are in use are not quite YAML, such as a description with a colon in it, and everybody
    knows what they mean.
    """

    fields: dict[str, str]
    """Texts by their keys in small letters; lists and tables are left out."""
    body: str


def read_document(text: str) -> SkillDocument | None:
    """Return the parts of a text; None if it has no front matter."""
    found = _FENCE.match(text.removeprefix("\ufeff"))
    if found is None:
        return None
    fields = {key.lower(): value for key, value in _entries(found[1].splitlines()) if value}
    return SkillDocument(fields, text.removeprefix("\ufeff")[found.end() :].strip())


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(lines):
        found = _ENTRY.fullmatch(lines[at])
        at += 1
        if found is None:
            continue
        below: list[str] = []
        while at < len(lines) and (not lines[at].strip() or lines[at][:1] in " \t"):
            below.append(lines[at].strip())
            at += 1
        yield found[1], _value((found[2] or "").strip(), below)


def _value(first: str, below: list[str]) -> str:
    """Parse the text of an entry that continues in these lines."""
    block = _BLOCK.fullmatch(first)
    if block is not None:
        lines = "\n".join(below).strip()
        return lines if block[1] == "|" else re.sub(r"(?<!\n)\n(?!\n)", " ", lines)
    if not first:
        is_text = below and not any(line.startswith("- ") or _ENTRY.fullmatch(line) for line in below)
        return " ".join(below).strip() if is_text else ""
    return _unquoted(" ".join([first, *below]).strip())


def _unquoted(text: str) -> str:
    found = _QUOTED.fullmatch(text)
    if found is None:
        return text.partition(" #")[0].rstrip()
    inner = found[1][1:-1]
    return _ESCAPED.sub(_escape, inner) if found[1][0] == '"' else inner.replace("''", "'")


def _escape(found: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(found[1], found[1])

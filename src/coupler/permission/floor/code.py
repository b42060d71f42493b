"""Programs that stand in a line as text: what they would destroy, as far as it can be recognised.

Languages are many; what is looked for are the calls that delete, write or start something, and the paths and
commands that stand there as literals.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from coupler.permission.floor.arguments import Arguments
from coupler.permission.floor.expansion import Reading
from coupler.permission.floor.finding import Finding
from coupler.permission.floor.place import Places
from coupler.permission.floor.program import deletes

LONGEST = 20_000
"""Characters of a program that are looked at."""

_LITERAL = re.compile(
    r"""'((?:[^'\\\n]|\\.){0,4000})'|"((?:[^"\\\n]|\\.){0,4000})"|`((?:[^`\\\n]|\\.){0,4000})`"""
    r"""|\bq[qwx]?[{(/|]([^})/|]{0,200})[})/|]"""
)
_DELETING = re.compile(
    r"rmtree|remove_?tree|rimraf|\brm_r|\brm_rf|rmdirSync|rmSync|\brmdir\b|removedirs|removeAll|RemoveAll"
    r"|delete_?(?:dir|tree|folder)|FileUtils\.|fs(?:\.promises)?\.rm|Deno\.remove|\bunlink|os\.remove\b|emptyDir"
    r"|\.unlink\(|\.rmdir\(|shutil\.move|os\.rename|fs\.rename",
    re.IGNORECASE,
)
_STARTING = re.compile(
    r"system|popen|subprocess|\bexec|spawn|child_process|check_(?:call|output)|\brun\(|\bcall\(|qx|`|shell|passthru"
    r"|pty\.|Command|\be\s|\bsh\b|\|\s*getline|\||!|<%|open\s*\(?|eval|io\.popen|os\.execute|Process",
    re.IGNORECASE,
)
_WRITING = re.compile(r"open|write|truncate|dump|copy|File\b|>", re.IGNORECASE)
_HOME = re.compile(
    r"expanduser\(|Path\.home\(\)|homedir\(\)|environ(?:\.get)?[\[(]\s*['\"]HOME|getenv\(\s*['\"]HOME|env\.HOME"
    r"|ENV[\[{]\s*['\"]?HOME|Dir\.home",
)
_ROOT_OF_ALL = re.compile(
    r"\bos\.sep\b|path\.sep\b|chr\(47\)|String\.fromCharCode\(47\)|os\.path\.abspath\(os\.sep\)"
)
_JOINING = re.compile(r"['\"]\s*(?:\+|\.|,)\s*['\"]")
_FORKING = re.compile(
    r"fork\s+while\s+fork|while\s*\(?\s*(?:1|true|!0)\s*\)?\s*[:{]?\s*(?:do)?\s*(?:os\.)?fork|loop\s*\{\s*fork",
    re.IGNORECASE,
)


def destroys(code: str, places: Places) -> Finding | None:
    """What a program's text would destroy by itself; what it starts is read elsewhere."""
    code = code[:LONGEST]
    if _FORKING.search(code):
        return Finding("would start processes until nothing works any more")
    literals = [*literals_in(code)]
    if _DELETING.search(code):
        whole = deletes(Arguments([Reading("-r"), *(Reading(text, True) for text in literals)]), places)
        if whole is not None and whole.is_fatal:
            return whole
        if _ROOT_OF_ALL.search(code) or (_HOME.search(code) and not _goes_on_from_home(code, literals)):
            return Finding("would delete a home directory or the root of the file system")
    if _WRITING.search(code):
        for text in literals:
            if (lost := places.vital(os.path.expanduser(text))) is not None:
                return Finding(f"would overwrite {lost}")
    return None


def starts_something(code: str) -> bool:
    """Whether a program's text may start another program."""
    return _STARTING.search(code[:LONGEST]) is not None


def literals_in(code: str) -> Iterator[str]:
    """The texts that stand in a program, also those that it puts together."""
    for source in dict.fromkeys((code, _JOINING.sub("", code))):
        for match in _LITERAL.finditer(source):
            text = next(group for group in match.groups() if group is not None)
            yield os.path.expanduser(text) if text.startswith("~") else text


def _goes_on_from_home(code: str, literals: list[str]) -> bool:
    """Whether the home is only where the path begins, as in `Path.home() / "build"`."""
    named = [text for text in literals if text and text not in {"HOME", "~", "/", os.path.expanduser("~")}]
    return any(re.search(r"\w", text) for text in named) and re.search(r"[/+,]|join", code) is not None

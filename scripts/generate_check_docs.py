"""Write what the documentation says about commands, `coupler check` and `coupler.toml` from the code itself.

    python scripts/generate_check_docs.py [--check]

The options go to docs/cli.md, the assertions to docs/check.md, the keys to docs/configuration.md, each
between two comments that name them. `--check` writes nothing and fails on a difference.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from coupler.config.keys import SCHEMA
from coupler.inspect.conformance.assertion import catalogue
from coupler.inspect.conformance.rendering.wording import LEVEL_WORDS, section_address
from coupler.inspect.trace import Side

DOCS = Path(__file__).parent.parent / "docs"

SETTER_WORDS = {
    "user": "the user",
    "trusted project": "the user, a trusted project",
    "project": "the user, any project",
}

COMMANDS = (
    "agents",
    "agents doctor",
    "chat",
    "check",
    "editor",
    "exec",
    "init",
    "login",
    "permissions",
    "permissions list",
    "permissions forget",
    "record",
    "replay",
    "resume",
    "run",
    "runs",
    "runs list",
    "runs show",
    "runs logs",
    "runs cancel",
    "sessions",
    "sessions list",
    "sessions show",
    "sessions export",
    "sessions delete",
    "trust",
    "workflows",
    "workflows list",
    "workflows show",
    "workflows validate",
    "workflows graph",
    "workflows new",
    "workflows schema",
)


def main(arguments: list[str]) -> int:
    pages = {
        DOCS / "cli.md": {f"coupler {command} --help": options(command) for command in COMMANDS},
        DOCS / "check.md": {f"{side} assertions": assertions(side) for side in ("agent", "client")},
        DOCS / "configuration.md": {"keys": keys()},
    }
    changed = False
    for page, regions in pages.items():
        before = after = page.read_text()
        for name, text in regions.items():
            after = replaced(after, name, text)
        if after != before:
            changed = True
            if "--check" in arguments:
                print(f"{page} is out of date: run python scripts/generate_check_docs.py", file=sys.stderr)
            else:
                page.write_text(after)
    return 1 if changed and "--check" in arguments else 0


def options(command: str) -> str:
    """The command's own help, as a terminal of 80 columns shows it."""
    done = subprocess.run(
        [sys.executable, "-m", "coupler", *command.split(), "--help"],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    return f"```text\n{done.stdout.replace('python -m coupler', 'coupler')}```"


def assertions(side: Side) -> str:
    """A table of what is asserted about one side."""
    if importlib.util.find_spec(f"coupler.inspect.conformance.{side}") is None:
        return ""
    rows = ["| id | level | assertion | section |", "|---|---|---|---|"]
    for assertion in catalogue(side):
        address = section_address(assertion.section)
        section = f"[{assertion.section}]({address})" if address else assertion.section
        level, sentence = LEVEL_WORDS[assertion.level], assertion.sentence.replace("|", "\\|")
        rows.append(f"| {assertion.id} | {level} | {sentence} | {section} |")
    return "\n".join(rows)


def keys() -> str:
    """A table of what can be set in coupler.toml."""
    rows = ["| key | value | default | set by | variable | what it does |", "|---|---|---|---|---|---|"]
    for key in SCHEMA.keys:
        default = key.default_words or f"`{json.dumps(key.default)}`"
        variable = f"`{key.variable}`" if key.variable is not None else ""
        cells = (f"`{key.name}`", key.kind.words, default, SETTER_WORDS[key.setter], variable, key.sentence)
        rows.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(rows)


def replaced(page: str, name: str, text: str) -> str:
    """The page with other text between the comments of that name."""
    region = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    if not region.search(page):
        raise ValueError(f"there is no <!-- {name} --> … <!-- end --> in the page")
    return region.sub(lambda match: f"{match[1]}\n{text}\n{match[2]}", page)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

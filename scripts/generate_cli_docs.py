"""Write docs/cli.md from the code: the help of every command, the exit codes, the variables.

    python scripts/generate_cli_docs.py [--check]

A command that the page has no section for gets one, in the order of the alphabet. A variable of Coupler's own
that is in the code and not below, or the other way round, is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping

import click
from click.testing import CliRunner

from coupler.cli import record, serve
from coupler.cli.exit_codes import TABLES
from coupler.cli.main import command as coupler
from coupler.coder.model.credentials import PROVIDERS
from coupler.config.keys import Settings, schema_of
from pages import DOCS, ROOT, keep, replaced_all, table

PAGE = "cli.md"
WIDTH = 78
"""Columns that click fills in a terminal of 80."""
LAST_SECTION = "## Exit codes"

OWN_VARIABLES = {
    "COUPLER_HOME": "One directory for settings, sessions and what is remembered, instead of the user's own.",
    "COUPLER_LOG": "How much is logged, like `--log-level`.",
    "COUPLER_API_KEY": "The key of the coder's model, whoever its provider is.",
}
"""Those that stand for no key of coupler.toml, and that people set."""

INTERNAL_VARIABLES = {
    "COUPLER_CHECK": "a terminal of the client that `coupler check --client` examines",
    "COUPLER_CHECK_LOGIN": "the login of the agent that it plays",
    "COUPLER_CHECK_WITNESS": "where the MCP server of `coupler check` notes what reached it",
    "COUPLER_DELEGATED": "a Coupler that works for another agent",
    "COUPLER_RELAY_LOGIN": "a login in a terminal to the agent behind `coupler serve -- …`",
    "COUPLER_SHIM_PORT": "where the small program for Python tools knocks",
    "COUPLER_SHIM_TOKEN": "and what it shows there",
}
"""What Coupler sets for processes that it starts itself."""

USED_VARIABLES = {
    "NO_COLOR": "Set to anything: no colours.",
    "XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_CACHE_HOME": "Where settings, sessions and caches are, on Linux.",
    "OLLAMA_HOST": "Where Ollama listens.",
    "OTEL_PYTHON_TRACER_PROVIDER": "Names a provider of spans: then OpenTelemetry is used.",
}
"""What others have named, and Coupler heeds."""


def main(arguments: list[str]) -> int:
    helps = {f"coupler {words} --help".replace("  ", " "): text for words, text in helps_of(coupler)}
    parts = {**helps, "exit codes": exit_codes(), "variables": variables()}
    page = with_sections((DOCS / PAGE).read_text(encoding="utf-8"), [*helps])
    return keep({PAGE: replaced_all(page, parts)}, arguments)


def helps_of(command: click.Command, *path: str) -> Iterator[tuple[str, str]]:
    """The words of this command and of all below it, each with its help as a terminal shows it."""
    yield " ".join(path), f"```text\n{help_of(path)}```"
    if isinstance(command, click.Group):
        for name, child in sorted(command.commands.items()):
            if not child.hidden:
                yield from helps_of(child, *path, name)


def help_of(path: tuple[str, ...]) -> str:
    match path:
        case ("serve",):
            return serve.HELP
        case ("record",):
            return record.HELP
    done = CliRunner().invoke(coupler, [*path, "--help"], prog_name="coupler", terminal_width=WIDTH)
    if done.exit_code != 0:
        raise ValueError(f"coupler {' '.join(path)} --help ended with {done.exit_code}: {done.output}")
    return done.stdout


def with_sections(page: str, names: list[str]) -> str:
    """The page with a section for every command, the new ones where the alphabet puts them."""
    for name in names:
        if f"<!-- {name} -->" in page:
            continue
        words = name.removesuffix(" --help")
        level = "##" if words.count(" ") == 1 else "###"
        section = f"{level} {words}\n\n<!-- {name} -->\n\n<!-- end -->\n\n"
        place = page.index(next_heading(page, words))
        page = page[:place] + section + page[place:]
    return page


def next_heading(page: str, words: str) -> str:
    """The heading of the first section behind a command's; that of `coupler serve` is the first of all."""
    for heading in re.findall(r"^###? coupler .+$", page, re.MULTILINE):
        if heading.lstrip("# ") > words and heading != "## coupler serve":
            return f"{heading}\n"
    return LAST_SECTION


def exit_codes() -> str:
    """One table for all commands."""
    heads = [
        ", ".join(f"`coupler {name}`" if " " not in name else name for name in names) for names in TABLES
    ]
    by_code = [{each.code: each.sentence for each in codes} for codes in TABLES.values()]
    codes = sorted({code for sentences in by_code for code in sentences})
    rows = [(str(code), *(sentences.get(code, "") for sentences in by_code)) for code in codes]
    return table(("code", *heads), rows)


def variables() -> str:
    """Those of coupler.toml, Coupler's own, those of others, and the keys of models."""
    of_keys = {
        key.variable: f"Instead of `{key.name}`: {lowered(key.sentence)}"
        for key in schema_of(Settings).keys
        if key.variable
    }
    check_complete({*of_keys, *OWN_VARIABLES, *INTERNAL_VARIABLES})
    of_models: dict[str, str] = {}
    for provider in PROVIDERS.values():
        of_models |= dict.fromkeys(provider.variables, f"The key of {provider.title}'s models.")
        of_models |= dict.fromkeys(
            provider.address_variables, f"Another address of {provider.title}'s models."
        )
    known: Mapping[str, str] = {**OWN_VARIABLES, **of_keys, **USED_VARIABLES, **of_models}
    rows = [
        (", ".join(f"`{each}`" for each in name.split(", ")), sentence) for name, sentence in known.items()
    ]
    return table(("variable", "meaning"), rows)


def check_complete(told: set[str]) -> None:
    """Every variable of Coupler's own that the code has is told of, and no other."""
    texts = (file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    found = {name for text in texts for name in re.findall(r"\"(COUPLER_[A-Z_]+)\"", text)}
    if found != told:
        raise ValueError(
            f"scripts/generate_cli_docs.py: variables of the code and here differ: {found ^ told}"
        )


def lowered(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`coupler editor`: put an agent into an editor."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from coupler.cli import editor_settings
from coupler.cli.editor_settings import (
    JETBRAINS,
    VSCODE,
    ZED,
    ElispSettings,
    LuaSettings,
    Place,
    Settings,
    Surroundings,
)
from coupler.cli.exit_codes import FAILED, complain, refuse

if TYPE_CHECKING:
    from coupler.cli.editor_settings import Served


PROGRAM = "coupler editor"
COMMAND = "coupler.editor.command"
"""Where the words behind `--` are kept, which click would take for arguments."""


class _WithCommand(click.Command):
    """A command whose arguments end at `--`; what follows is a command line of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND] = args[place + 1 :]
            if not ctx.meta[COMMAND]:
                raise click.UsageError("say which agent to start behind `--`, as in: -- opencode acp", ctx)
            args = args[:place]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS] [EDITOR] [TARGET | -- COMMAND...]"]


def _variables(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, or NAME for the value that it has now."""
    found: dict[str, str] = {}
    for each in values:
        name, equals, value = each.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise click.BadParameter(f"{each!r} is not NAME or NAME=VALUE")
        if not equals and name not in os.environ:
            raise click.BadParameter(f"{name} is not set here: write {name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


@click.command(
    cls=_WithCommand,
    short_help="Put an agent into an editor.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("editor", required=False)
@click.argument("target", required=False)
@click.option("--agent", metavar="NAME", help="Serve this agent of `coupler agents` or of a coupler.toml.")
@click.option("--model", metavar="TEXT", help="The coder's model, such as anthropic:NAME or ollama:NAME.")
@click.option("--name", metavar="TEXT", help="What the editor calls the agent.")
@click.option(
    "--env",
    multiple=True,
    callback=_variables,
    metavar="NAME[=VALUE]",
    help="A variable for the agent, by default as it is here; may be repeated.",
)
@click.option("--write", "is_written", is_flag=True, help="Write it into the editor's settings.")
@click.option("--file", metavar="PATH", help="The settings that are meant, if there are several.")
@click.option("--force", "is_forced", is_flag=True, help="Replace another agent that has the same name.")
@click.pass_context
def editor(
    context: click.Context,
    /,
    editor: str | None,
    target: str | None,
    is_written: bool,
    file: str | None,
    is_forced: bool,
    **asked: Any,
) -> None:
    """Print the settings that put an agent into an editor, or write them.

    EDITOR is zed, neovim, jetbrains, emacs or vscode; without it they are
    listed. TARGET is what `coupler serve` takes: app.py, app.py:agent,
    package.module:Agent, workflow.yaml. Without one it is Coupler's own
    coding agent, with the workflows of each project. COMMAND starts any other
    ACP agent.

    With --write the settings are changed in place: everything else in them
    stays as it is, comments too, and the file as it was is kept beside it.

    \b
    Examples:
      coupler editor zed app.py:agent --name "My agent"
      coupler editor jetbrains --agent claude --write
      coupler editor neovim -- opencode acp

    Exit codes: 0 if all went well, 1 if the settings cannot be written, 2 for
    wrong usage.
    """
    if editor is None:
        _list()
        return
    from coupler.cli.editor_settings import Asked, CannotServeError, served

    try:
        found = editor_called(editor)
        agent = served(Asked(target, command=context.meta.get(COMMAND, ()), **asked))
    except (UnknownEditorError, CannotServeError) as error:
        refuse(str(error), PROGRAM)
    if not agent.title.strip() or not agent.title.isprintable():
        refuse("--name must be a text that can be shown", PROGRAM)
    if is_written:
        _write(found, agent, variant_of(editor), file, is_forced=is_forced)
    else:
        _print(found, agent, variant_of(editor), file)
    _tell_notes(agent)


def _list() -> None:
    """The editors, and where the settings are of those that have been used here."""
    from coupler.cli.editor_settings import NoPlaceError, Surroundings

    try:
        around = Surroundings.of_this_user()
    except NoPlaceError as error:
        refuse(str(error), PROGRAM, FAILED)
    for each in EDITORS:
        there = [place for place in each.places(around) if place.is_there]
        sys.stdout.write(f"{each.name:<11}{each.title}\n")
        for place in there:
            sys.stdout.write(f"{'':<11}found: {place.file}\n")
    sys.stderr.write("\n`coupler editor NAME` prints the settings for one, and with --write writes them.\n")


def _print(editor: Editor, agent: Served, variant: str | None, file: str | None) -> None:
    """The settings go to stdout, and what to do with them to stderr."""
    from coupler.cli.editor_settings import trial

    place = _place(editor, variant, file, is_written=False)
    sys.stdout.write(editor.settings.printed(agent))
    sys.stdout.flush()
    is_whole = place is not None and editor.settings.file_of(place.file, agent) == place.file
    where = place.file if place is not None and is_whole else "your own setup"
    advice = f"Put this into {where}, or add --write. To try the agent in this terminal:"
    _say(f"\n{advice}\n  {trial(agent)}", err=True)


def _write(editor: Editor, agent: Served, variant: str | None, file: str | None, *, is_forced: bool) -> None:
    from coupler.cli.editor_settings import NameTakenError
    from coupler.cli.jsonc import JsoncError
    from coupler.cli.terminal import CannotWriteError, content_of, replace

    place = _place(editor, variant, file, is_written=True)
    assert place is not None
    path = place.file if file is not None else editor.settings.file_of(place.file, agent)
    try:
        before = content_of(path)
        text = None if before is None else before.decode()
        after = editor.settings.merged(text, agent, is_forced=is_forced).encode()
        if after == before:
            _say(f"{agent.title} is in {path} already, as it should be: nothing was changed.")
        else:
            kept = replace(path, after, before)
            _say(f"{agent.title} is in {path} now.")
            if kept is not None:
                _say(f"What was there before is in {kept}.")
    except UnicodeDecodeError:
        _refuse_unchanged(f"{path} is not UTF-8 text")
    except JsoncError as error:
        _refuse_unchanged(f"{path} cannot be read as JSON: {error}")
    except (NameTakenError, CannotWriteError) as error:
        _refuse_unchanged(str(error))
    if place.is_sandboxed:
        _say(
            f"Note: {place.title} starts programs in a sandbox. If the agent is not found there, make its "
            "command `flatpak-spawn`, with `--host` and the command that is there now before its args."
        )
    _say(editor.settings.after_writing(path, agent))


def _refuse_unchanged(sentence: str) -> NoReturn:
    refuse(f"{sentence}. Nothing was changed; without --write the settings are printed", PROGRAM, FAILED)


def _place(editor: Editor, variant: str | None, file: str | None, *, is_written: bool) -> Place | None:
    """The installation that is meant. Of several that could be, only the user knows."""
    from coupler.cli.editor_settings import NoPlaceError, Place, Surroundings

    if file is not None:
        return Place(editor.title, Path(file).expanduser().absolute(), is_there=True)
    try:
        all_of_them = [*editor.places(Surroundings.of_this_user())]
    except NoPlaceError as error:
        if not is_written:
            return None
        refuse(str(error), PROGRAM, FAILED)
    meant = [each for each in all_of_them if variant is None or each.variant == variant]
    there = [each for each in meant if each.is_there]
    if not there:
        return meant[0]
    if len(there) > 1 and is_written:
        lines = "".join(f"\n  {each.title}: --file {each.file}" for each in there)
        refuse(f"there are several of them here: say which one is meant{lines}", PROGRAM)
    return there[0]


def _tell_notes(agent: Served) -> None:
    from coupler.redaction.sources import looks_secret

    for note in agent.notes:
        complain(f"note: {note}", PROGRAM)
    for name in agent.env:
        if looks_secret(name):
            complain(
                f"note: the value of {name} stands in the settings for everybody to read who can", PROGRAM
            )


def _say(text: str, *, err: bool = False) -> None:
    from coupler.cli.terminal import clean

    stream = sys.stderr if err else sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    stream.write(f"{clean(text)}\n")
    stream.flush()


# The editors that there are, by the names that people call them.


class UnknownEditorError(Exception):
    """No editor is called so."""


class Editor(NamedTuple):
    """An editor, where its settings are, and how they say it."""

    name: str
    title: str
    places: Callable[[Surroundings], Iterator[Place]]
    settings: Settings


EDITORS = (
    Editor("zed", "Zed", editor_settings.zed, ZED),
    Editor("neovim", "Neovim, with codecompanion.nvim or avante.nvim", editor_settings.neovim, LuaSettings()),
    Editor("jetbrains", "JetBrains IDEs", editor_settings.jetbrains, JETBRAINS),
    Editor("emacs", "Emacs, with agent-shell", editor_settings.emacs, ElispSettings()),
    Editor("vscode", "Visual Studio Code, with ACP Client", editor_settings.vscode, VSCODE),
)

ALIASES = {
    "nvim": "neovim",
    "zed-preview": "zed",
    "code": "vscode",
    "vs-code": "vscode",
    "visual-studio-code": "vscode",
    **dict.fromkeys(("codium", "vscodium", "cursor", "windsurf", "insiders", "code-insiders"), "vscode"),
    **dict.fromkeys(("intellij", "idea", "pycharm", "webstorm", "goland", "clion", "rider"), "jetbrains"),
    **dict.fromkeys(("phpstorm", "rubymine", "rustrover", "datagrip", "android-studio"), "jetbrains"),
    **dict.fromkeys(("doom", "spacemacs", "agent-shell"), "emacs"),
}

_VARIANTS = {
    **dict.fromkeys(("code", "vs-code", "visual-studio-code"), "vscode"),
    "codium": "vscodium",
    "code-insiders": "insiders",
}


def editor_called(name: str) -> Editor:
    """The editor; raises `UnknownEditorError` with the nearest name."""
    plain = _plain(name)
    by_name = {editor.name: editor for editor in EDITORS}
    found = by_name.get(ALIASES.get(plain, plain))
    if found is not None:
        return found
    near = get_close_matches(plain, [*by_name, *ALIASES], 1, 0.5)
    meant = f", did you mean {near[0]}?" if near else ""
    listed = ", ".join(by_name)
    raise UnknownEditorError(f"there are no settings for {name!r}{meant or ':'} There are those for {listed}")


def variant_of(name: str) -> str | None:
    """Which member of a family of editors is meant; None if none is."""
    plain = _plain(name)
    variant = _VARIANTS.get(plain, plain)
    return variant if variant in editor_settings.VSCODE_FAMILY else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")

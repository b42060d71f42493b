"""`coupler editor`: prints or writes the settings that put an agent into an editor.

Editors start agents in a directory of their own choice, and often without the variables of a shell. So the
command line that is written is this Coupler's, with every path absolute.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from coupler.cli.editor import editor_settings
from coupler.cli.editor.editor_settings import (
    JETBRAINS,
    VSCODE,
    ZED,
    EditorSettings,
    ElispSettings,
    LuaSettings,
    NameTakenError,
    NoSettingsPathError,
    ServedCommand,
    SettingsFile,
    UserPlatform,
)
from coupler.cli.exit_codes import FAILED, print_error, refuse
from coupler.cli.output import say, stdout, tell
from coupler.cli.serve import is_workflow

PROGRAM = "coupler editor"
COMMAND = "coupler.editor.command"
"""Key in click's context for the words after `--`, which click would take for arguments."""

CODER_TITLE = "Coupler"
FILE_ENDINGS = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".jar", ".sh", ".json", ".toml", ".yaml", ".yml")
"""Endings of arguments that are files."""

HOME_VARIABLE = "COUPLER_HOME"
CACHES = ("archive-v0", "environments-v2", "builds-v0")
"""Directories of uv's cache, from which programs run without being installed."""

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


class _CommandWithTail(click.Command):
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
    """Parses NAME=VALUE, or NAME for the value that it has now."""
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
    cls=_CommandWithTail,
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
@click.option("--file", metavar="PATH", help="The settings file to use, if there are several.")
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
    try:
        found = find_editor(editor)
        agent = command_to_serve(ServeRequest(target, command=context.meta.get(COMMAND, ()), **asked))
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
    """Lists the editors, and where the settings are of those that have been used here."""
    try:
        platform = UserPlatform.of_this_user()
    except NoSettingsPathError as error:
        refuse(str(error), PROGRAM, FAILED)
    output = stdout()
    for each in EDITORS:
        there = [place for place in each.places(platform) if place.is_there]
        output.line(f"{each.name:<11}{each.title}")
        for place in there:
            output.line(f"{'':<11}found: {place.file}")
    tell("\n`coupler editor NAME` prints the settings for one, and with --write writes them.")


def _print(editor: Editor, agent: ServedCommand, variant: str | None, file: str | None) -> None:
    """Prints the settings to stdout, and what to do with them to stderr."""
    place = _settings_file(editor, variant, file, is_written=False)
    output = stdout()
    output.data(editor.settings.printed(agent))
    output.flush()
    is_whole = place is not None and editor.settings.file_of(place.file, agent) == place.file
    where = place.file if place is not None and is_whole else "your own setup"
    advice = f"Put this into {where}, or add --write. To try the agent in this terminal:"
    tell(f"\n{advice}\n  {trial_command(agent)}")


def _write(
    editor: Editor, agent: ServedCommand, variant: str | None, file: str | None, *, is_forced: bool
) -> None:
    from coupler.cli.editor.jsonc import JsoncError
    from coupler.cli.terminal import CannotWriteError, read_file, replace_file

    place = _settings_file(editor, variant, file, is_written=True)
    assert place is not None
    path = place.file if file is not None else editor.settings.file_of(place.file, agent)
    try:
        before = read_file(path)
        text = None if before is None else before.decode()
        after = editor.settings.merged(text, agent, is_forced=is_forced).encode()
        if after == before:
            say(f"{agent.title} is in {path} already, as it should be: nothing was changed.")
        else:
            kept = replace_file(path, after, before)
            say(f"{agent.title} is in {path} now.")
            if kept is not None:
                say(f"What was there before is in {kept}.")
    except UnicodeDecodeError:
        _refuse_unchanged(f"{path} is not UTF-8 text")
    except JsoncError as error:
        _refuse_unchanged(f"{path} cannot be read as JSON: {error}")
    except (NameTakenError, CannotWriteError) as error:
        _refuse_unchanged(str(error))
    if place.is_sandboxed:
        say(
            f"Note: {place.title} starts programs in a sandbox. If the agent is not found there, make its "
            "command `flatpak-spawn`, with `--host` and the command that is there now before its args."
        )
    say(editor.settings.after_writing(path, agent))


def _refuse_unchanged(sentence: str) -> NoReturn:
    refuse(f"{sentence}. Nothing was changed; without --write the settings are printed", PROGRAM, FAILED)


def _settings_file(
    editor: Editor, variant: str | None, file: str | None, *, is_written: bool
) -> SettingsFile | None:
    """The settings file that is meant. Of several that could be, only the user knows."""
    if file is not None:
        return SettingsFile(editor.title, Path(file).expanduser().absolute(), is_there=True)
    try:
        all_of_them = [*editor.places(UserPlatform.of_this_user())]
    except NoSettingsPathError as error:
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


def _tell_notes(agent: ServedCommand) -> None:
    from coupler.redaction.sources import looks_secret

    for note in agent.notes:
        print_error(f"note: {note}", PROGRAM)
    for name in agent.env:
        if looks_secret(name):
            print_error(
                f"note: the value of {name} stands in the settings for everybody to read who can", PROGRAM
            )


class UnknownEditorError(Exception):
    """No editor has this name."""


class Editor(NamedTuple):
    """An editor, where its settings are, and how they name an agent."""

    name: str
    title: str
    places: Callable[[UserPlatform], Iterator[SettingsFile]]
    settings: EditorSettings


EDITORS = (
    Editor("zed", "Zed", editor_settings.zed, ZED),
    Editor(
        "neovim",
        "Neovim, with codecompanion.nvim or avante.nvim",
        editor_settings.neovim,
        LuaSettings(),
    ),
    Editor("jetbrains", "JetBrains IDEs", editor_settings.jetbrains, JETBRAINS),
    Editor("emacs", "Emacs, with agent-shell", editor_settings.emacs, ElispSettings()),
    Editor("vscode", "Visual Studio Code, with ACP Client", editor_settings.vscode, VSCODE),
)


def find_editor(name: str) -> Editor:
    """Finds an editor by its name or an alias; raises `UnknownEditorError` with the nearest name."""
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
    """The member of a family of editors that a name means; None if none is."""
    plain = _plain(name)
    variant = _VARIANTS.get(plain, plain)
    return variant if variant in editor_settings.VSCODE_FAMILY else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")


class CannotServeError(Exception):
    """The target or agent that was asked for does not exist."""


class ServeRequest(NamedTuple):
    """The agent that was asked for on the command line."""

    target: str | None = None
    agent: str | None = None
    command: Sequence[str] = ()
    model: str | None = None
    name: str | None = None
    env: Mapping[str, str] = {}


def command_to_serve(asked: ServeRequest) -> ServedCommand:
    """The command line for what was asked; raises `CannotServeError`."""
    if sum(map(bool, (asked.target, asked.agent, asked.command))) > 1:
        raise CannotServeError("name one of these: a target, --agent, or a command behind `--`")
    if asked.model is not None and (asked.target or asked.command):
        raise CannotServeError("--model is for the coder: leave it out, or serve no other agent")
    if asked.command:
        found = _command(asked.command)
    elif asked.agent:
        found = _agent(asked.agent, has_model=asked.model is not None)
    elif asked.target:
        found = _target(asked.target)
    else:
        found = ServedCommand(CODER_TITLE, (), notes=() if asked.model else _notes_on_model())
    model = () if asked.model is None else ("--model", asked.model)
    home = os.environ.get(HOME_VARIABLE)
    env = {**({HOME_VARIABLE: str(Path(home).absolute())} if home else {}), **found.env, **asked.env}
    title = found.title if asked.name is None else asked.name
    words = (*coupler_words(), "serve", *model, *found.words)
    notes = (*found.notes, *(_notes_on_packages() if asked.target else ()), *_notes_on_place(words[0]))
    return ServedCommand(title, words, env, notes)


def coupler_words() -> list[str]:
    """The command of this Coupler: links stay as they are, so that an update is not passed by."""
    name = "coupler.exe" if sys.platform == "win32" else "coupler"
    beside = Path(sys.executable).with_name(name)
    if beside.is_file():
        return [str(beside)]
    called = shutil.which(sys.argv[0])
    if called is not None and Path(called).name == name:
        return [str(Path(called).absolute())]
    return [sys.executable, "-m", "coupler"]


def _notes_on_model() -> tuple[str, ...]:
    """Notes that no model is set: the coder can be put into an editor before it has one."""
    from coupler.coder.model.choice import chosen_model
    from coupler.coder.model.credentials import ModelError
    from coupler.coder.profiles import CoderProfile
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import configuration

    try:
        is_set = chosen_model(configuration("."), CoderProfile()) is not None
    except (ConfigError, ModelError) as error:
        return (str(error),)
    sentence = "no model is set yet: `coupler login coder` sets one; without it only workflows can be run"
    return () if is_set else (sentence,)


def _notes_on_packages() -> tuple[str, ...]:
    """Notes that Coupler may not be in the environment where the agent's packages are."""
    active = os.environ.get("VIRTUAL_ENV")
    if not active or os.path.realpath(active) == os.path.realpath(sys.prefix):
        return ()
    return (
        f"{active} is active, and this Coupler is in {sys.prefix}: if the agent needs packages of that one, "
        "install Coupler there, and use that one",
    )


def _notes_on_place(program: str) -> tuple[str, ...]:
    if not {*Path(program).parts} & {*CACHES}:
        return ()
    return (
        f"{program} is in a cache, and will be gone when that is emptied: install Coupler, "
        "as with `uv tool install`, and use that one",
    )


def _target(target: str) -> ServedCommand:
    from coupler.agent.factory import is_file_target, split_target

    place, attribute = (target, "") if is_workflow(target) else split_target(target)
    if not is_file_target(place) and not is_workflow(place):
        return _module(target, place)
    path = Path(place).expanduser().absolute()
    if not path.is_file():
        raise CannotServeError(f"there is no file {place}{_nearest_file(path)}")
    words = f"{os.path.normpath(path)}{':' if attribute else ''}{attribute}"
    return ServedCommand(_title(path.stem), (words,))


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f": there is no directory {path.parent}"
    near = get_close_matches(path.name, [each.name for each in path.parent.glob(f"*{path.suffix}")], 1)
    return f"; did you mean {near[0]}?" if near else ""


def _module(target: str, module: str) -> ServedCommand:
    """Serves a module: found wherever it is installed; one of this directory needs PYTHONPATH."""
    here = str(Path.cwd())
    top, _, _ = module.partition(".")
    installed = [each for each in sys.path if each and os.path.realpath(each) != os.path.realpath(here)]
    title = _title(module.rpartition(".")[2])
    if PathFinder.find_spec(top, [here]) is not None:
        return ServedCommand(title, (target,), {"PYTHONPATH": here})
    if PathFinder.find_spec(top, installed) is not None:
        return ServedCommand(title, (target,))
    if (near := _nearest_agent(target)) is not None:
        raise CannotServeError(
            f"there is no module {module} here; is the agent {near!r} meant? Then write --agent {near}"
        )
    raise CannotServeError(
        f"there is no module {module} here or in {sys.prefix}; a file is named with its .py, and a command "
        f"stands behind `--`"
    )


def _nearest_agent(name: str) -> str | None:
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import entries

    try:
        near = get_close_matches(name.lower(), [*entries(".")], 1, 0.7)
    except ConfigError:
        return None
    return near[0] if near else None


def _agent(name: str, *, has_model: bool = False) -> ServedCommand:
    """Serves an agent that `coupler agents` lists; a profile of the coder among them."""
    from coupler.client.errors import AgentError
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import (
        configuration,
        is_coder,
        merged_entries,
        resolve,
        unknown_agent_message,
    )

    plain = name.partition(":")[0]
    try:
        config = configuration(".")
        known = merged_entries(config)
        everywhere = merged_entries(configuration(None))
    except ConfigError as error:
        raise CannotServeError(str(error)) from None
    if plain not in known:
        raise CannotServeError(unknown_agent_message(name, config))
    entry, notes = known[plain], []
    if plain not in everywhere or everywhere[plain].programs != entry.programs:
        notes.append(
            f"{plain} is set in {entry.origin}: the editor finds it only in this project. "
            "In your own coupler.toml it would be found everywhere"
        )
    try:
        resolve(name, ".")
    except AgentError as error:
        notes.append(error.message)
    if plain == "coder":
        return ServedCommand(CODER_TITLE, (), notes=() if has_model else _notes_on_model())
    if has_model and not is_coder(entry):
        raise CannotServeError(f"--model is for the coder, and {name} is another agent: leave it out")
    title = entry.title if is_coder(entry) else f"{entry.title} via Coupler"
    return ServedCommand(title, ("--agent", name), notes=tuple(notes))


def _command(words: Sequence[str]) -> ServedCommand:
    """Serves any ACP agent by its command line; one word may be a name of the catalogue."""
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import find_entry

    try:
        is_name = len(words) == 1 and find_entry(words[0].partition(":")[0], ".") is not None
    except ConfigError as error:
        raise CannotServeError(str(error)) from None
    if is_name:
        return _agent(words[0])
    program = shutil.which(Path(words[0]).expanduser())
    if program is None:
        raise CannotServeError(f"{words[0]} cannot be started: no such program was found")
    arguments = [_absolute(word) for word in words[1:]]
    title = f"{_title(Path(words[0]).stem)} via Coupler"
    return ServedCommand(title, ("--", str(Path(program).absolute()), *arguments))


def _absolute(word: str) -> str:
    """Makes an argument that is a path absolute, if the file exists."""
    path = Path(word).expanduser()
    is_path = os.sep in word or word.endswith(FILE_ENDINGS)
    if word.startswith("-") or not is_path or not path.exists():
        return word
    return os.path.normpath(path.absolute())


def _title(stem: str) -> str:
    words = re.sub(r"[_\-.\s]+", " ", stem).strip()
    return words[:1].upper() + words[1:] if words else CODER_TITLE


def trial_command(served: ServedCommand) -> str:
    """A command line with which a person tries it in a terminal first."""
    return shlex.join(["coupler", "chat", shlex.join(served.words)])

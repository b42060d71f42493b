"""`coupler serve`: serves an agent to an editor over stdin and stdout.

It reads its own arguments and imports only what the first answer needs, because an editor waits for it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from coupler.agent.startup.serve_options import DRAFTS
from coupler.cli.exit_codes import FAILED, refuse
from coupler.runtime.logs import LEVELS

if TYPE_CHECKING:
    from coupler.agent.startup.serve_options import ServeOptions


PROGRAM = "coupler serve"
CODER = "coder"
"""The agent that is served without a target."""


class Option(NamedTuple):
    """An option of `coupler serve`, as it is parsed, explained and completed."""

    name: str
    value: str
    """The word for its value in the help; empty for a flag."""
    help: str
    choices: tuple[str, ...] = ()
    """The values that a shell offers."""
    is_for_coder: bool = False


OPTIONS = (
    Option(
        "--agent",
        "NAME",
        "Serve this agent of a coupler.toml: a profile of the coder\n"
        '(agent = "coder"), or any other that `coupler agents` lists.',
    ),
    Option("--model", "TEXT", "The coder's model, such as anthropic:NAME or ollama:NAME.", is_for_coder=True),
    Option("--no-workflows", "", "Offer no workflows beside the coder.", is_for_coder=True),
    Option(
        "--no-commands",
        "",
        "Offer no slash commands of the coder, and carry out none:\nfor prompts that no person types.",
        is_for_coder=True,
    ),
    Option(
        "--login",
        "",
        "Log in to the coder's model in this terminal, and exit.\n"
        "Editors use it. The same as `coupler login coder`.",
        is_for_coder=True,
    ),
    Option("--name", "TEXT", "The agent's name, as the editor is told."),
    Option("--title", "TEXT", "Its title, for people."),
    Option("--version", "TEXT", "Its version."),
    Option("--store", "PATH", "Keep the sessions in this file instead of the user's own."),
    Option("--no-store", "", "Keep no sessions: they end with the connection."),
    Option("--drafts", "NAMES", "Offer parts of the protocol that are not stable yet: fork.", DRAFTS),
    Option(
        "--log-level",
        "TEXT",
        "debug, info, warning, error or critical; COUPLER_LOG\nsets it too.  [default: warning]",
        LEVELS,
    ),
    Option("--log-file", "PATH", "Write the log here instead of to stderr."),
)
"""All options besides --help, in the order of the help."""

VALUED = tuple(option.name for option in OPTIONS if option.value)
FLAGS = tuple(option.name for option in OPTIONS if not option.value)
FOR_CODER = tuple(option.name for option in OPTIONS if option.is_for_coder)


def _explained(option: Option) -> str:
    """The lines of an option in the help, with its text in a column of its own."""
    names = f"{option.name} {option.value}".rstrip()
    return f"  {names:18}" + option.help.replace("\n", "\n" + " " * 20) + "\n"


HELP = f"""\
Usage: coupler serve [OPTIONS]
       coupler serve [OPTIONS] TARGET [WORDS]...
       coupler serve [OPTIONS] -- COMMAND...

  Serve an agent to an editor over stdin and stdout.

  Without TARGET it is Coupler's own coding agent, with the model that
  `coupler login coder` or a coupler.toml sets. The workflows of the
  directory that the editor works in, and the user's own, are its slash
  commands; they need no model. A TARGET that ends with .yaml is one
  workflow, which every prompt runs.

  Any other TARGET is a file or module with an agent in it: app.py,
  app.py:agent, package.module:Agent. Without a name after the colon it is
  what the file itself passes to serve(), else the one called `agent`, else
  the only Agent there, else the only turn function.

  With WORDS after it, TARGET is run as a program with these arguments, as
  Python would: so editors log in to agents that do it in a terminal.

  COMMAND starts any ACP agent, or is the name of one that `coupler agents`
  lists. It is served again through Coupler, with what it may lack: sessions
  that are kept, permission rules, and secrets that stay secret.

  Examples:
    coupler serve
    coupler serve app.py:agent --title "My agent"
    coupler serve -- opencode acp

Options:
{"".join(map(_explained, OPTIONS))}\
  -h, --help        Show this message and exit.
"""

LOGIN_VARIABLE = "COUPLER_RELAY_LOGIN"
"""Variable set by editors that run the command to log in; the same as in `coupler.relay.relay`."""

BY_NAME = "by name"
"""Its value if the command is a name of the catalogue."""


def main(arguments: list[str]) -> None:
    """Serves what the arguments name, until the editor closes the connection."""
    arguments, command = _split(arguments)
    if "--help" in arguments or "-h" in arguments:
        from coupler.cli.output import say

        say(HELP)
        return
    target, words, given = parse(arguments, command)
    agent = _named_agent(given, target, command)
    if agent is not None and not _is_coder(agent):
        _refuse_unknown(agent)
        command = [agent]
    if "--login" in given:
        _log_in(given.get("--model"))
        return
    if is_workflow(target) and words:
        refuse(f"{target} is a workflow: its inputs are what the user writes, not {words[0]}", PROGRAM)
    if command and LOGIN_VARIABLE in os.environ:
        _run_command(command)
    if words:
        _run_as_program(target, words)
        return
    options = _options(given)
    _check_log_settings(given.get("--log-level"), given.get("--log-file"))
    accepts = _check_configuration(target if is_workflow(target) else None)
    descriptors = _take_over_stdio()

    from coupler.agent.startup.early_answer import (
        TERMINAL_LOGIN,
        EarlyAnswer,
        StartupCache,
        answer_initialize,
    )
    from coupler.agent.startup.preflight import coder_key, command_key

    served_as = command_key(command) if command else target or coder_key(agent or CODER, given.get("--model"))
    # What a workflow's prompts may hold changes with its file, of which the cache knows nothing.
    memory = None if served_as is None else StartupCache(":".join([served_as, *accepts]), options)
    record = None if memory is None else memory.recall()
    depends_on_client = record is not None and TERMINAL_LOGIN in record.introduction
    plain = record is not None and not depends_on_client
    early = answer_initialize(*descriptors, record.introduction) if record and plain else EarlyAnswer()

    # From here on the editor has its answer, or needs more than a remembered one.
    from coupler.agent.factory import ServeCall
    from coupler.agent.startup.serve import run
    from coupler.agent.startup.shutdown import exit_without_collection, record_baseline
    from coupler.runtime.logs import send_logs_to_stderr

    send_logs_to_stderr(given.get("--log-level"), given.get("--log-file"))
    served = ServeCall(_target_to_serve(target, command, agent, given, accepts), None, options)
    record_baseline(may_have_children=False)
    run(served, *descriptors, memory=memory, record=record, early=early)
    if not target:
        exit_without_collection()


def _log_in(model: str | None) -> None:
    """Asks for a model and its key in the terminal of an editor, and stores them."""
    from coupler.cli.agents.login import CoderLoginOptions, store_coder_login

    store_coder_login(CoderLoginOptions(model, None, None, True))


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Splits the arguments at `--`, behind which another agent's command stands."""
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    command = arguments[place + 1 :]
    if not command:
        refuse("say which agent to start, as in: coupler serve -- opencode acp", PROGRAM)
    return arguments[:place], command


def parse(arguments: list[str], command: list[str]) -> tuple[str, list[str], dict[str, str]]:
    """Parses the target, the words after it and the options; a mistake ends the program."""
    targets: list[str] = []
    given: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        option, equals, value = word.partition("=")
        if not word.startswith("-") or len(targets) > 1:
            targets.append(word)  # after the first word that is the target's own, so are options
        elif word in FLAGS:
            given[word] = "yes"
        elif option not in VALUED:
            refuse(f"there is no option {option}; there are {', '.join((*VALUED, *FLAGS))}", PROGRAM)
        else:
            given[option] = value if equals else next(rest, "") or refuse(f"{option} needs a value", PROGRAM)
    if command and targets:
        refuse(f"serve {targets[0]} or the command behind `--`, not both", PROGRAM)
    if command:
        return "", [], given
    return targets[0] if targets else "", targets[1:], given


def is_workflow(target: str) -> bool:
    """True if a target is the file of a workflow."""
    return target.endswith((".yaml", ".yml"))


def _named_agent(given: dict[str, str], target: str, command: list[str]) -> str | None:
    """The agent that --agent names, if any; refuses options for the coder with anything else."""
    agent = given.get("--agent")
    if agent is not None and (target or command):
        refuse(f"serve {target or 'the command behind `--`'} or --agent {agent}, not both", PROGRAM)
    for option in FOR_CODER:
        if option in given and (target or command or (agent is not None and not _is_coder(agent))):
            refuse(f"{option} is for the coder: leave it out, or serve no other agent", PROGRAM)
    return agent


def _is_coder(agent: str) -> bool:
    """True if an agent is the coder or a profile of it; a wrong configuration is told later."""
    if agent == CODER:
        return True
    from coupler.config.lookup import ConfigError
    from coupler.providers.catalogue import find_entry, is_coder

    try:
        entry = find_entry(agent, os.getcwd())
    except (OSError, ConfigError):
        return True
    return entry is not None and is_coder(entry)


def _refuse_unknown(agent: str) -> None:
    """Refuses a name that is in no list: as a command it would only be looked for in vain."""
    from coupler.providers.catalogue import configuration, merged_entries, unknown_agent_message

    config = configuration(os.getcwd())
    if agent.partition(":")[0] not in merged_entries(config):
        refuse(f"{unknown_agent_message(agent, config)}; a command goes behind `--`", PROGRAM)


def _run_command(command: list[str]) -> NoReturn:
    """Runs the agent's own command: a user logs in in a terminal, which is between them and the agent."""
    if os.environ.pop(LOGIN_VARIABLE) == BY_NAME:
        command = _named_command(command)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        refuse(f"{command[0]} cannot be started: {error.strerror}", PROGRAM)


def _named_command(command: list[str]) -> list[str]:
    """Resolves a name of the catalogue to its command, with the words of its login behind it."""
    from coupler.client.errors import AgentError
    from coupler.client_api import resolve_name

    try:
        meant = resolve_name(command[0], cwd=".")
    except AgentError as error:
        refuse(error.message, PROGRAM)
    if meant is None or not isinstance(meant.target, list):
        return command
    os.environ.update(meant.env or {})  # type: ignore[arg-type]
    return [*meant.target, *command[1:]]


def _run_as_program(target: str, words: list[str]) -> None:
    import runpy
    from pathlib import Path

    from coupler.agent.factory import is_file_target, split_target

    place, _ = split_target(target)
    if is_file_target(place):
        if not Path(place).is_file():
            refuse(f"there is no file {place}", PROGRAM)
        sys.argv = [place, *words]
        sys.path.insert(0, str(Path(place).resolve().parent))
        runpy.run_path(place, run_name="__main__")
    else:
        sys.argv = [place, *words]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(place, run_name="__main__", alter_sys=True)


def _options(given: dict[str, str]) -> ServeOptions:
    from coupler.agent.startup.serve_options import OptionError, ServeOptions, drafts_option, store_option

    if "--store" in given and "--no-store" in given:
        refuse("--store and --no-store exclude each other", PROGRAM)
    try:
        return ServeOptions(
            name=given.get("--name"),
            title=given.get("--title"),
            version=given.get("--version"),
            store=store_option(given.get("--store", "--no-store" not in given)),
            drafts=drafts_option(given.get("--drafts", "")),
        )
    except OptionError as error:
        refuse(str(error), PROGRAM)


def _check_log_settings(level: str | None, file: str | None) -> None:
    """Checks the log settings early: a program that answers and then refuses to work confuses editors."""
    from coupler.runtime.logs import LogSettingError, check_log_file, log_level

    try:
        log_level(level)
        if file is not None:
            check_log_file(file)
    except LogSettingError as error:
        refuse(str(error), PROGRAM)


def _check_configuration(workflow: str | None) -> list[str]:
    """Ends the program if the configuration, or the workflow that is served, is wrong.

    Returns the blocks that prompts to the workflow may hold besides text; empty without one.
    """
    from coupler.agent.startup.preflight import PreflightCache
    from coupler.runtime.directories import working_directory

    cwd = working_directory()  # if it was removed, sessions name their own
    preflight = PreflightCache(cwd, os.environ, workflow)
    if not preflight.needs_look:
        return []
    known = preflight.recall()
    if known is not None:
        return known
    from coupler.cli.serve_checks import (
        NO_WORKFLOW,
        CannotStartError,
        check_configuration,
        check_workflow,
    )

    try:
        check_configuration(cwd, os.environ)
        checked = check_workflow(workflow, cwd or os.sep) if workflow is not None else NO_WORKFLOW
        preflight.remember(*checked)
        return [*checked.accepts]
    except CannotStartError as error:
        refuse(str(error), PROGRAM, FAILED)


def _take_over_stdio() -> tuple[int, int]:
    from coupler.wire.stdio import StdioIsTerminal, take_over

    try:
        return take_over()
    except StdioIsTerminal as error:
        refuse(str(error), PROGRAM)


def _target_to_serve(
    target: str, command: list[str], agent: str | None, given: dict[str, str], accepts: list[str]
) -> object:
    """The object to serve, or its name if it is still to be imported."""
    if command:
        return _relayed_agent(command)
    if is_workflow(target):
        from coupler.workflow.editor.served import ServedWorkflow

        return ServedWorkflow(target, accepts)
    if target:
        return target
    from coupler.coder.served import Coder

    return Coder(
        agent or CODER,
        model=given.get("--model"),
        has_workflows="--no-workflows" not in given,
        has_commands="--no-commands" not in given,
    )


def _relayed_agent(command: list[str]) -> object:
    from coupler.client.errors import AgentError
    from coupler.client_api import connect

    try:
        return connect(command[0] if len(command) == 1 else command)
    except AgentError as error:
        refuse(error.message, PROGRAM)

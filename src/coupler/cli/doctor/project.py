"""Examines the settings and where each comes from, the project, its workflows, and agents."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from coupler.cli.terminal import short_directory
from coupler.runtime.formatting import count, shortened
from coupler.runtime.terminal_text import one_line

if TYPE_CHECKING:
    from coupler.cli.doctor.doctor import DoctorContext, DoctorSection
    from coupler.config import Config, Origin, TrustedFiles
    from coupler.config.keys import ConfigSetting
    from coupler.providers.catalogue import CatalogueEntry
    from coupler.workflow.language.library import Library


LONGEST_VALUE = 70
"""Characters of a value that are shown."""

MOST_NAMED = 12
MOST_PROBLEMS = 5

OWN_VARIABLES = ("COUPLER_API_KEY", "COUPLER_DELEGATED", "COUPLER_HOME", "COUPLER_LOG", "COUPLER_RELAY_LOGIN")
"""Variables of Coupler that correspond to no key of a coupler.toml."""


class SettingValue(NamedTuple):
    """A key's value, or one entry of a list, with its origin."""

    key: str
    text: str
    origin: Origin
    over: Origin | None = None
    """The origin of lower priority whose value this one overrides."""


def examine_settings(section: DoctorSection, context: DoctorContext) -> None:
    """Reports the files, what is wrong with them, and then every value and its origin."""
    _look_at_files(section, context)
    _look_at_rules(section, context)
    config = context.config
    context.keep_secret(_variables(config))
    values = [*_values(config, context)]
    section.facts["settings"] = [
        {"key": key, "value": text, "origin": str(origin), "over": None if over is None else str(over)}
        for key, text, origin, over in values
    ]
    for value in values:
        over = "" if value.over is None else f", over {_origin_text(value.over)}"
        section.ok(value.key, f"{value.text} ({_origin_text(value.origin)}{over})")
    untrusted = {setting.key.name for setting in config.untrusted}
    for note in config.notes:
        if note.key not in untrusted:  # that is told of the project
            section.note(note.key, str(note))
    _look_at_variables(section)


def _look_at_files(section: DoctorSection, context: DoctorContext) -> None:
    from coupler.config import ConfigError
    from coupler.config.lookup import project_files, user_file

    own = user_file(os.environ)
    files: list[str] = []
    if own is None:
        section.note("your file", "there is no home directory for one", "set COUPLER_HOME to a directory")
    elif os.path.lexists(own):
        files.append(own)
        section.ok("your file", short_directory(own))
    else:
        section.ok("your file", f"{short_directory(own)} is not there, so the defaults hold")
    try:
        projects = [] if context.directory is None else [*project_files(context.directory, os.environ)]
    except (ConfigError, ValueError):
        projects = []  # told as what is wrong
    files += [file.path for file in projects]
    for number, file in enumerate(projects):
        what = "" if number == 0 else ", from which only what forbids and asks counts"
        section.ok("project's file", f"{short_directory(file.path)}{what}")
    section.facts["files"] = files
    if context.config_error is not None:
        for problem in context.config_error.problems:
            section.problem("wrong", problem, "correct it: until then sessions in this project are refused")


def _look_at_rules(section: DoctorSection, context: DoctorContext) -> None:
    from coupler.agent.permission import rules_of

    try:
        rules_of(context.config)
    except ValueError as error:
        for line in str(error).splitlines():
            section.problem(
                "permissions", line, "correct the rule: see the page on permissions of the manual"
            )


def _values(config: Config, context: DoctorContext) -> Iterator[SettingValue]:
    weaker = _weaker(context)
    for setting in config.settings.values():
        below = weaker.get(setting.key.name)
        is_over = below is not None and below.origin != setting.origin and not _is_list(setting)
        by_origin: dict[Origin, list[str]] = {}
        for text, origin in _entries(setting, config):
            by_origin.setdefault(origin, []).append(_cut(text))
        for origin, texts in by_origin.items():
            over = below.origin if is_over and below is not None else None
            yield SettingValue(setting.key.name, ", ".join(texts), origin, over)


def _weaker(context: DoctorContext) -> Mapping[str, ConfigSetting]:
    """The settings without variables: those of the user's file and the project's."""
    from coupler.config import ConfigError, load
    from coupler.config.config import Config
    from coupler.config.keys import schema_of

    variables = {key.variable for key in schema_of(Config).keys}
    environ = {name: value for name, value in os.environ.items() if name not in variables}
    try:
        users = load(None, environ=environ).settings
        here = load(context.directory, environ=environ, trust=None).settings
    except ConfigError:
        return {}
    stronger = {
        name: setting
        for name, setting in here.items()
        if context.config.settings[name].origin.layer == "environment"
    }
    return {**users, **stronger}


def _is_list(setting: ConfigSetting) -> bool:
    return isinstance(setting.key.unset, tuple)


def _entries(setting: ConfigSetting, config: Config) -> Iterator[tuple[str, Origin]]:
    """The value, or each entry that files have added to a list. What may hold keys is only named."""
    from coupler.config import ListItem
    from coupler.config.agent_tables import AgentTable

    if not isinstance(setting.value, tuple):
        yield without_query(str(setting.value)), setting.origin
        return
    for each in setting.value:
        match each:
            case ListItem(text=text, origin=origin):
                yield text, origin
            case AgentTable(name=name, origin=origin):
                yield name, origin
            case _:
                yield str(each.name), _origin_of_server(each.name, setting, config)


def _origin_of_server(name: str, setting: ConfigSetting, config: Config) -> Origin:
    from coupler.config import ConfigError, Origin
    from coupler.config.files import read_config_file
    from coupler.config.lookup import user_file

    own = user_file(os.environ)
    try:
        user = None if own is None else read_config_file(own)
    except ConfigError:
        user = None
    projects = [config.project] if setting.origin.layer == "project" else []
    for layer, file in (*(("project", each) for each in projects), ("user", user)):
        place = None if file is None else file.positions.find(("mcp", name))
        if file is not None and place is not None:
            return Origin(layer, file.path, place.line)  # type: ignore[arg-type]
    return setting.origin


def _variables(config: Config) -> Iterator[Mapping[str, str]]:
    """Secret variables of agents and servers, none of which is shown, whatever quotes it."""
    from coupler.mcp.servers import named_values
    from coupler.redaction.sources import looks_secret

    servers = config.mcp
    for variables in (*(table.env for table in config.agents), *named_values(servers)):
        yield {name: value for name, value in variables.items() if looks_secret(name)}
    named = [entry.text for entry in config.secrets.names]
    yield {name: os.environ[name] for name in named if name in os.environ}


def _look_at_variables(section: DoctorSection) -> None:
    """Reports COUPLER_ variables that nothing reads."""
    from difflib import get_close_matches

    from coupler.config.config import Config
    from coupler.config.keys import schema_of
    from coupler.runtime.logs import LogSettingError, log_level

    known = [*OWN_VARIABLES, *(key.variable for key in schema_of(Config).keys if key.variable)]
    found = sorted(name for name in os.environ if name.startswith("COUPLER_"))
    section.facts["variables"] = found
    for name in found:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.7)
            hint = f": did you mean {near[0]}?" if near else ""
            section.note("variable", f"{one_line(name)} is set, but nothing reads it{hint}")
    try:
        log_level()
    except LogSettingError as error:
        section.problem("COUPLER_LOG", str(error), "set it to one of these, or unset it")


def _origin_text(origin: Origin) -> str:
    if origin.file is not None:
        return short_directory(origin.file) + ("" if origin.line is None else f" line {origin.line}")
    return str(origin)


def without_query(text: str) -> str:
    """An address without what may be a token in it; any other text as it is."""
    return text.partition("?")[0] if text.startswith(("http://", "https://")) else text


def _cut(text: str) -> str:
    line = one_line(text)
    return shortened(line, LONGEST_VALUE)


def examine_project(section: DoctorSection, context: DoctorContext) -> None:
    """Reports where the project begins, and whether its coupler.toml counts."""
    from coupler.config import ConfigError
    from coupler.config.lookup import is_repository, project_directory

    directory = context.directory
    if directory is None:
        section.problem("directory", "the directory that you are in was deleted", "go to another one")
        return
    try:
        root = project_directory(directory, os.environ)
    except ConfigError:
        root = directory  # what is wrong is told of the settings
    kind = "a git repository" if is_repository(root) else "no git repository"
    section.facts["directory"] = root
    section.ok("directory", f"{short_directory(root)}, {kind}")
    _look_at_trust(section, context)


def _look_at_trust(section: DoctorSection, context: DoctorContext) -> None:
    config = context.config
    if context.config_error is not None:
        section.note("trust", "a coupler.toml is wrong, so it cannot be told what of the project counts")
        return
    if config.project is None:
        section.ok("trust", "there is no coupler.toml here that would need it")
        section.facts["is_trusted"] = None
        return
    shown = short_directory(config.project.path)
    if config.untrusted:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(each.key.name for each in config.untrusted))
        section.facts["is_trusted"] = False
        section.note(
            "trust",
            f"{shown} is not trusted as it is now, so that {names} in it will not count",
            "read the file, then run `coupler trust`",
        )
        return
    needs = any(
        each.origin.layer == "project" and each.key.setter == "trusted project"
        for each in config.settings.values()
    )
    section.facts["is_trusted"] = True if needs else None
    section.ok("trust", f"{shown} {'is trusted as it is now' if needs else 'sets nothing that needs it'}")


def examine_workflows(section: DoctorSection, context: DoctorContext) -> None:
    """Checks all workflows, as `coupler workflows validate` does, and whether they are trusted."""
    from coupler.config import ConfigError
    from coupler.runtime.extras import MissingExtraError
    from coupler.workflow.errors import require_packages

    directory = context.directory
    if directory is None:
        section.note("files", "the directory that you are in was deleted, so only your own could be run")
        return
    try:
        require_packages()
        from coupler.workflow.language.library import Library

        _look_at_workflows(section, Library(directory), context.trust)
    except MissingExtraError:
        _tell_missing_packages(section, directory)
    except ConfigError as error:
        section.problem("files", error.problems[0], "correct it, or remove it")


def _look_at_workflows(section: DoctorSection, library: Library, trust: TrustedFiles) -> None:
    from coupler.cli.workflows import check_workflows, problem_line, rows_of

    rows = rows_of(library, trust)
    _, problems = check_workflows(library, ())
    section.facts["workflows"] = [
        {"name": row.name, "origin": row.origin, "state": row.state, "file": row.file} for row in rows
    ]
    if not rows:
        section.ok("files", "there is none yet: `coupler workflows new NAME` begins one")
        return
    errors = [each for each in problems if each.severity == "error"]
    wrong = {each.position.file for each in errors}
    valid = [row.name for row in rows if row.state != "broken" and row.file not in wrong]
    if valid:
        more = "" if len(valid) <= MOST_NAMED else f" and {len(valid) - MOST_NAMED} more"
        section.ok("valid", f"{', '.join(valid[:MOST_NAMED])}{more}")
    for problem in errors[:MOST_PROBLEMS]:
        sentence = problem_line(problem, library.directory)
        section.problem(
            "invalid", sentence, "correct it; `coupler workflows validate` shows all that is wrong"
        )
    if len(errors) > MOST_PROBLEMS:
        section.note("invalid", f"{count(len(errors) - MOST_PROBLEMS, 'more error')}")
    warnings = len(problems) - len(errors)
    if warnings:
        section.note(
            "warnings",
            f"there {'is' if warnings == 1 else 'are'} {count(warnings, 'warning')}",
            "see them with `coupler workflows validate`",
        )
    untrusted = [row.name for row in rows if row.state == "not trusted"]
    if untrusted:
        section.note(
            "trust",
            f"{', '.join(untrusted[:MOST_NAMED])} cannot be run by name until trusted",
            "read the files, then run `coupler trust`",
        )


def _tell_missing_packages(section: DoctorSection, directory: str) -> None:
    """Reports missing packages: a problem only for those who have workflows."""
    from coupler.cli.doctor.installation import install_command
    from coupler.config import ConfigError
    from coupler.config.lookup import project_workflows, workflows_directory

    remedy = f"run `{install_command('workflows')}`"
    own = workflows_directory(os.environ)
    try:
        there = project_workflows(directory, os.environ)
    except ConfigError:
        there = None
    if there is not None or (own is not None and os.path.isdir(own)):  # noqa: PTH112
        place = one_line(there.path if there is not None else own or "")
        section.problem(
            "packages",
            f"there are workflows in {place}, and the packages that run them are not installed",
            remedy,
        )
    else:
        section.note("packages", "the packages that run workflows are not installed", remedy)


def examine_agents(section: DoctorSection, context: DoctorContext) -> None:
    """Reports which agents can be started. None is started, as `coupler agents doctor` does."""
    from coupler.providers.catalogue import merged_entries

    found: dict[str, list[str]] = {"installed": [], "fetched": [], "native": [], "missing": []}
    configured: list[str] = []
    for entry in merged_entries(context.config).values():
        state = _state(entry)
        found[state].append(entry.name)
        if state == "missing" and entry.origin is not None:
            _tell_missing(section, entry)
            configured.append(entry.name)
    section.facts |= found
    native = [f"{name} (without ACP)" for name in found["native"]]
    there = ", ".join((*found["installed"], *native))
    section.ok("installed", there or "none")
    if found["fetched"]:
        section.ok("fetched", f"{', '.join(found['fetched'])}, when they are first used")
    others = [name for name in found["missing"] if name not in configured]
    if others:
        section.ok("others", f"{', '.join(others)}: `coupler agents` says how to install them")


def _state(entry: CatalogueEntry) -> str:
    from coupler.client.errors import AgentError
    from coupler.providers.catalogue import choose_form, is_installed

    try:
        chosen = choose_form(entry)
    except AgentError:
        return "missing"
    if chosen.form == "native":
        return "native"
    if chosen.is_fetched:
        return "fetched"
    return "installed" if chosen.command and is_installed(chosen.command[0]) else "missing"


def _tell_missing(section: DoctorSection, entry: CatalogueEntry) -> None:
    program = entry.programs[0][0] if entry.programs else None
    sentence = entry.install if program is None else f"its program {one_line(program)} is not found"
    section.problem(
        one_line(entry.name), sentence, f"install it, or correct the command: it is set in {entry.origin}"
    )

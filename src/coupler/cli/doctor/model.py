"""The coder's model: which one, who says so, where its key comes from, and whether it answers."""

from __future__ import annotations

import asyncio
import os
import shlex
import stat
import time
from typing import TYPE_CHECKING

from coupler.cli.doctor.settings import without_query
from coupler.cli.sessions.wording import one_line, short_directory

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.section import Section
    from coupler.coder.model.choice import ModelChoice

LOGIN = "run `coupler login coder`"


def examine(section: Section, circumstances: Circumstances) -> None:
    """From what is set to what answers; the first thing that is wrong ends it."""
    from coupler.coder.model.choice import chosen
    from coupler.coder.model.credentials import ModelError
    from coupler.coder.profile import USUAL

    _look_at_profiles(section, circumstances)
    if not _look_at_credentials(section, circumstances):
        return
    try:
        choice = chosen(circumstances.config, USUAL)
    except ModelError as error:
        section.problem("model", str(error), f"correct it where it is set, or {LOGIN}")
        return
    if choice is None:
        _tell_none(section, circumstances)
        return
    section.facts |= {"model": choice.name, "base_url": without_query(choice.base_url or "") or None}
    section.ok("model", f"{choice.name}{_at(choice)}, as {_who_says(circumstances)} says")
    try:
        key = _key(section, choice, circumstances)
    except ModelError as error:
        section.problem("key", str(error), f"{LOGIN}, or set the variable")
        return
    if circumstances.is_offline:
        section.ok("answer", "not tried out, because of --offline")
    else:
        _try(section, choice, key, circumstances)


def _look_at_credentials(section: Section, circumstances: Circumstances) -> bool:
    """The file of `coupler login coder`, whose keys are from now on not shown; whether it can be read."""
    from coupler.coder.model.credentials import ModelError, credentials_file, stored_credentials
    from coupler.runtime.directories import NoHomeError

    try:
        file = credentials_file()
        mode = file.stat().st_mode
    except (NoHomeError, FileNotFoundError):
        return True
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        section.problem("keys", f"{file} cannot be read: {reason}", "see to the directory, as told above")
        return False
    if not stat.S_ISREG(mode):
        section.problem("keys", f"{short_directory(str(file))} is not a file", f"move it away, then {LOGIN}")
        return False
    if os.name == "posix" and mode & 0o077:
        section.problem(
            "keys",
            f"others can read {short_directory(str(file))}",
            f"run `{shlex.join(['chmod', '600', str(file)])}`",
        )
    try:
        stored = stored_credentials()
    except ModelError as error:
        section.problem("keys", str(error), f"move it away, then {LOGIN}")
        return False
    circumstances.keep_secret([{"stored_key": each.key} for each in stored.keys])
    return True


def _look_at_profiles(section: Section, circumstances: Circumstances) -> None:
    from coupler.coder.profile import CODER, ProfileError, profile_names, profile_of

    config = circumstances.config
    names = [name for name in profile_names(config) if name != CODER]
    for name in names:
        try:
            profile_of(name, config)
        except ProfileError as error:
            section.problem("profile", str(error), f"correct [agents.{one_line(name)}] in coupler.toml")
    section.facts["profiles"] = names


def _tell_none(section: Section, circumstances: Circumstances) -> None:
    from coupler.coder.model.credentials import PROVIDERS

    section.facts["model"] = None
    if circumstances.config_error is not None:
        section.note("model", "a coupler.toml is wrong, so it cannot be told whether it sets one")
        return
    at_hand = [
        f"COUPLER_MODEL={provider.name}:{provider.example or 'NAME'} would work with {variable}, which is set"
        for provider in PROVIDERS.values()
        for variable in provider.variables[:1]
        if os.environ.get(variable, "").strip()
    ]
    section.note(
        "model",
        "none is set, so the coder can only run workflows",
        "; ".join((f"{LOGIN} to choose one", *at_hand[:2])),
    )


def _who_says(circumstances: Circumstances) -> str:
    from coupler.config import keys

    setting = circumstances.config.settings.get(keys.CODER_MODEL.name)
    if setting is None:
        return "`coupler login coder`"
    origin = setting.origin
    if origin.file is None:
        return str(origin)
    return short_directory(origin.file) + ("" if origin.line is None else f" line {origin.line}")


def _key(section: Section, choice: ModelChoice, circumstances: Circumstances) -> str | None:
    from coupler.coder.model.credentials import Keyring, missing_key, provider_of

    key = Keyring().key_for(choice)
    section.facts["key_from"] = None if key is None else key.source
    if key is not None:
        circumstances.keep_secret([{key.name: key.value}])
        section.ok("key", f"that of {key.source}")
        return key.value
    if provider_of(choice.provider).needs_key and choice.base_url is None:
        raise missing_key(choice)
    section.ok("key", "none, which this model may not need")
    return None


def _try(section: Section, choice: ModelChoice, key: str | None, circumstances: Circumstances) -> None:
    from coupler.coder.model.credentials import LOCAL

    if choice.provider == LOCAL:
        _look_for_file(section, choice)
        return
    if not _has_packages(section):
        return
    asyncio.run(_ask(section, choice, key, circumstances))


def _has_packages(section: Section) -> bool:
    """Imported before the clock runs: they take seconds, which are not the model's."""
    from coupler.cli.doctor.installation import install_command

    try:
        from coupler.coder.model import chat_model  # noqa: F401
        from coupler.langchain import errors  # noqa: F401
    except ImportError as error:
        sentence = f"the coder's packages are not installed ({error})"
        section.problem("packages", sentence, f"run `{install_command('coder')}`")
        return False
    return True


async def _ask(section: Section, choice: ModelChoice, key: str | None, circumstances: Circumstances) -> None:
    from coupler.coder.model.chat_model import Verdict, tried

    began = time.monotonic()
    verdict, sentence = await tried(choice, key, circumstances.patience)
    seconds = time.monotonic() - began
    section.facts |= {"verdict": verdict.value, "seconds": round(seconds, 3)}
    match verdict:
        case Verdict.WORKS:
            section.ok("answer", f"it answers, after {seconds:.1f} s")
        case Verdict.REFUSED:
            section.problem("answer", sentence, f"{LOGIN} with another key or model")
        case Verdict.UNKNOWN:
            place = "its provider" if choice.base_url is None else without_query(choice.base_url)
            remedy = f"see whether {place} can be reached from here, and whether a proxy is needed"
            section.problem("answer", f"it could not be asked: {sentence}", remedy)
    section.close()


def _look_for_file(section: Section, choice: ModelChoice) -> None:
    """A model of this machine is loaded when it is first used, which may take minutes: not here."""
    from importlib.util import find_spec

    from coupler.cli.doctor.installation import python_command
    from coupler.coder.model.credentials import ModelError
    from coupler.coder.model.local import ENGINE, ENGINE_REQUIREMENT, facts_of, model_file

    try:
        file = model_file(choice)
        facts_of(file)
    except ModelError as error:
        section.problem("file", str(error), f"see `coupler models --help`, or {LOGIN}")
        return
    section.ok("file", f"{short_directory(str(file))}, which is loaded when it is first used")
    if find_spec(ENGINE) is None:
        command = python_command(ENGINE_REQUIREMENT)
        section.problem("packages", f"{ENGINE}, which runs it, is not installed", f"run `{command}`")


def _at(choice: ModelChoice) -> str:
    return "" if choice.base_url is None else f" at {without_query(choice.base_url)}"

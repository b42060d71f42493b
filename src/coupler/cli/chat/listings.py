"""What there is to choose from, as listings: modes, models, options, earlier sessions, commands."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from coupler.cli.chat.completion import known_options
from coupler.cli.chat.own_commands import OWN
from coupler.cli.chat.parts import Choice, Listing
from coupler.cli.sessions.wording import one_line
from coupler.client.session import Settings, values_of
from coupler.schema.v1 import AvailableCommand, SessionConfigBoolean, SessionConfigSelect, SessionInfo

KEYS = (
    Choice("Enter", "send; Alt-Enter or Ctrl-J begins another line"),
    Choice("@file", "let a file, an image or a directory go along"),
    Choice("Ctrl-O", "show the last tool call in full"),
    Choice("Ctrl-C", "cancel the turn; twice within a second leaves"),
    Choice("Ctrl-D", "leave"),
)


def modes(settings: Settings) -> Listing:
    """The modes of the session."""
    described = {mode.id: _described(mode.name, mode.description) for mode in settings.modes}
    option = settings.mode_option
    current = settings.mode if settings.modes or option is None else option.current_value
    choices = [_choice(mode, described.get(mode, ""), mode == current) for mode in settings.offered_modes]
    return _listing("Modes", choices, "/mode MODE changes it", "The agent offers no modes.")


def models(settings: Settings) -> Listing:
    """The models that can be used."""
    choices = [_choice(model, "", model == settings.model) for model in settings.offered_models]
    return _listing("Models", choices, "/model MODEL changes it", "The agent offers no models.")


def options(settings: Settings) -> Listing:
    """The options with their values."""
    choices = [_option(option) for option in known_options(settings)]
    return _listing("Options", choices, "/option NAME VALUE sets one", "The agent offers no options.")


def sessions(found: Sequence[SessionInfo], current: str) -> Listing:
    """Earlier sessions, by number."""
    choices = [
        Choice(f"{number}", _session(session), session.session_id == current)
        for number, session in enumerate(found, 1)
    ]
    none = "The agent knows no earlier session in this directory."
    return _listing("Sessions", choices, "/load N goes on with one", none)


def commands(theirs: Sequence[AvailableCommand]) -> Listing:
    """Everything that can be typed, and the keys."""
    known = [_choice(f"/{command.name}", command.description) for command in theirs]
    ours = [
        Choice(" ".join(filter(None, [f"/{own.name}", own.hint])), f"{own.description} (chat)") for own in OWN
    ]
    return Listing(
        "Commands and keys", (*known, *ours, *KEYS), "//NAME sends a command to the agent as it is"
    )


def newest_first(found: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Sessions by their last change; those without a time keep their order, at the end."""
    return sorted(found, key=lambda session: session.updated_at or "", reverse=True)


def _listing(title: str, choices: list[Choice], hint: str, none: str) -> Listing:
    return Listing(title, tuple(choices), hint) if choices else Listing(none, ())


def _choice(word: str, meaning: str, is_current: bool = False) -> Choice:
    return Choice(one_line(word), one_line(meaning), is_current)


def _described(name: str, description: object) -> str:
    return f"{name}: {description}" if isinstance(description, str) and description else name


def _option(option: SessionConfigSelect | SessionConfigBoolean) -> Choice:
    if isinstance(option, SessionConfigSelect):
        return _choice(option.id, f"{option.current_value} (of {', '.join(values_of(option.options))})")
    return _choice(option.id, f"{'on' if option.current_value else 'off'} (of on, off)")


def _session(session: SessionInfo) -> str:
    title = one_line(session.title or "") or "(no title)"
    when = "" if session.updated_at in (UNSET, None) else f"  {one_line(str(session.updated_at))}"
    return f"{title}  {one_line(session.session_id)}{when}"

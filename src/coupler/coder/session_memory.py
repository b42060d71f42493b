"""What the coder keeps in a session's state, which is stored with every turn, each under a name of its own.

Others keep theirs there as well, and what is stored may be anybody's: so entries are replaced one at a time,
and whoever recalls one looks at what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.agent.session import Session


def recalled(session: Session, name: str) -> Any:
    """What was kept under this name; None if nothing was."""
    return _kept(session).get(name)


def keep(session: Session, name: str, value: Any) -> None:
    """Keep what JSON can hold, in the place of what was there."""
    session.state = {**_kept(session), name: value}


def forget(session: Session, name: str) -> None:
    """Keep nothing under this name any more."""
    session.state = {each: value for each, value in _kept(session).items() if each != name}


def _kept(session: Session) -> Mapping[str, Any]:
    return session.state if isinstance(session.state, Mapping) else {}

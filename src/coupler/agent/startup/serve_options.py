"""The options of `serve()` and `coupler serve`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from coupler.agent.agent import Command

NO_STORE = ""
"""Value of `store` for sessions that are not kept."""

FORK = "fork"
"""Name of the draft of the protocol that adds `session/fork`."""

DRAFTS = (FORK,)


class ServeOptions(NamedTuple):
    """Options of serving an agent. None stands for the agent's own attribute, or for the default."""

    name: str | None = None
    title: str | None = None
    version: str | None = None
    store: str | None = None
    """The file that keeps the sessions; NO_STORE for none."""
    drafts: str | None = None
    """Names of drafts to offer, separated by commas."""
    text: bool | None = None
    """Of a graph: True to show what its models say."""
    thoughts: bool | None = None
    """Of a graph: True to show what its models think."""
    blocks: Callable[[dict[str, Any]], Any] | None = None
    """Of a graph: converts images, files and other blocks of an answer."""
    commands: Sequence[Command] | None = None
    """Of a graph: its slash commands."""
    keep_cut_off: bool | None = None
    """Of a graph: False to leave a turn that a kill has cut off out of the conversation."""

    def over(self, others: ServeOptions) -> ServeOptions:
        """Return these options, with the others' values for those that are None."""
        return ServeOptions(
            *(ours if ours is not None else theirs for ours, theirs in zip(self, others, strict=True))  # type: ignore[arg-type]
        )

    def offers(self, draft: str) -> bool:
        """Return whether a draft was asked for."""
        return draft in (self.drafts or "").split(",")


NO_OPTIONS = ServeOptions()

GRAPH_OPTIONS = ("text", "thoughts", "blocks", "commands", "keep_cut_off")
"""Options that only graphs understand."""


class OptionError(ValueError):
    """An option has an invalid value."""


def store_option(store: str | os.PathLike[str] | bool) -> str | None:
    """Read `serve(store=…)`: True for the user's own file, False for none, or a path."""
    if isinstance(store, bool):
        return None if store else NO_STORE
    path = os.fspath(store)
    return path if path == ":memory:" else os.path.abspath(path)


def drafts_option(drafts: object) -> str | None:
    """Read `serve(drafts=…)`: names of drafts."""
    names = [drafts] if isinstance(drafts, str) else [str(each) for each in drafts]  # type: ignore[attr-defined]
    names = [name.strip() for each in names for name in each.split(",") if name.strip()]
    unknown = [name for name in names if name not in DRAFTS]
    if unknown:
        raise OptionError(f"there is no draft {unknown[0]!r}; there is {', '.join(DRAFTS)}")
    return ",".join(sorted({*names})) or None

"""What the middleware of a finished graph declares for its sessions: modes and options.

A compiled graph does not keep what it was made of, but for the schema of its state. So middleware that
declares something marks the schema: the mark is no part of the state, and costs nothing when the graph runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired, Protocol, get_args

from langchain.agents.middleware.types import PrivateStateAttr
from typing_extensions import TypedDict

from coupler.agent.agent import Mode, Option

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

BEGINNING = "coupler_declares_"
"""How the keys of marks begin."""


class Declaring(Protocol):
    """Middleware that declares something."""

    @property
    def declared(self) -> Declared: ...


class Declared(NamedTuple):
    """What sessions of an agent have: modes, the first of which they begin in, and options."""

    modes: tuple[Mode, ...] = ()
    options: tuple[Option, ...] = ()


class Mark:
    """Stands in the schema of a graph's state for the middleware that put it there."""

    def __init__(self, middleware: Declaring) -> None:
        self.middleware = middleware


def marked_schema(what: str, middleware: Declaring) -> type[Any]:
    """A schema of the state with nothing in it but the mark of this middleware."""
    key = f"{BEGINNING}{what}"
    annotation = NotRequired[Annotated[Any, Mark(middleware), PrivateStateAttr]]
    make: Any = TypedDict  # by its name, which type checkers do not know before
    schema: type[Any] = make(f"Declares_{what}", {key: annotation})
    return schema


def declared_in(graph: Pregel[Any, Any, Any, Any]) -> Declared:
    """What the middleware of the graph declares."""
    schema = getattr(getattr(graph, "builder", None), "state_schema", None)
    modes: list[Mode] = []
    options: list[Option] = []
    for key, annotation in getattr(schema, "__annotations__", {}).items():
        mark = _mark(annotation) if key.startswith(BEGINNING) else None
        if mark is not None:
            declared = mark.middleware.declared
            modes += declared.modes
            options += declared.options
    return Declared(tuple(modes), tuple(options))


def _mark(annotation: Any) -> Mark | None:
    """The mark in an annotation, which may be wrapped."""
    for part in getattr(annotation, "__metadata__", ()):
        if isinstance(part, Mark):
            return part
    return next((found for part in get_args(annotation) if (found := _mark(part)) is not None), None)

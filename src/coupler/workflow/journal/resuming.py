"""What a run that goes on does over: all that comes after a step, or just what had failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coupler.workflow.journal.happenings import Place

AFTERWARDS = ("hooks.error.", "hooks.end.", "hooks.cancel.")
"""What is done at the end of a workflow, and again at the next end."""


def places_to_forget(places: Iterable[Place], failed_step: str | None) -> tuple[Place, ...]:
    """Of the steps that are over: the one that failed, those around it, its hooks, and those at the end."""
    return tuple(
        place
        for place in places
        if _is_around(place, failed_step) or _is_hook_of(failed_step, place) or _is_afterwards(place)
    )


def innermost(places: Sequence[Place]) -> set[Place]:
    """Those of some steps that have none of the others inside of them."""
    return {
        place
        for place in places
        if not any(_is_around(place, str(other)) for other in places if other != place)
    }


def _is_around(place: Place, step: str | None) -> bool:
    """Whether a step is the one at this place, or inside of it."""
    if step is None or not step.startswith(str(place)):
        return False
    rest = step[len(str(place)) :]
    return not rest or rest[0] in ".[~/"


def _is_hook_of(step: str | None, place: Place) -> bool:
    """Whether a place is that of a hook of the agent which a step uses."""
    return step is not None and place.path.startswith(f"{step}.hooks.")


def _is_afterwards(place: Place) -> bool:
    # A hook may call another workflow, whose steps are done again with it.
    return any(name.startswith(AFTERWARDS) for name in place.path.split("/"))

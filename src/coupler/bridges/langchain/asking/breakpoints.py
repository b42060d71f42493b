"""Breakpoints of a graph (`interrupt_before=`, `interrupt_after=`): the user is asked whether it goes on.

They carry no question of the author's and want no answer, so that a yes is all there is to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from langgraph.types import Interrupt, StateSnapshot

from coupler.bridges.langchain.asking.interrupts import ask

if TYPE_CHECKING:
    from coupler.bridges.langchain.current import Current

GO_ON, STOP = "Go on", "Stop here"


async def may_pass(state: StateSnapshot, current: Current) -> bool:
    """Whether the user lets the graph go on from where it stands. At its end nobody is asked."""
    waiting = list(dict.fromkeys(_waiting_nodes(state)))
    if not waiting:
        return False
    question = f"The agent has stopped before {', '.join(waiting)}, as its breakpoints say. Is it to go on?"
    answer: object = await ask(Interrupt({"question": question, "options": [GO_ON, STOP]}), current)
    return answer == GO_ON


def _waiting_nodes(state: StateSnapshot) -> Iterator[str]:
    """The nodes that are next: of a graph inside of this one, its own."""
    inner = {task.name: task.state for task in state.tasks if isinstance(task.state, StateSnapshot)}
    for node in state.next:
        below = inner.get(node)
        if below is not None and below.next:
            yield from _waiting_nodes(below)
        else:
            yield node

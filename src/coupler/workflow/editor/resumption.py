"""What stands behind `/resume`: which run, its secret inputs again, and whether it may have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from coupler.workflow.editor.typed import Typed

FORCE = "--force"


class Resumption(NamedTuple):
    """A wish to go on with a run."""

    run: str = ""
    """The run that is named, or its beginning; empty: the session's last one."""
    inputs: str = ""
    """What stands behind that: inputs with names."""
    is_forced: bool = False
    """Whether it goes on with files that have changed since it began."""

    @classmethod
    def of(cls, typed: Typed) -> Resumption:
        """What was typed; `--force` stands before the inputs, which may be any text."""
        is_forced, run, rest = False, "", typed.text.strip()
        while rest:
            word, *following = rest.split(maxsplit=1)
            if word == FORCE:
                is_forced = True
            elif run or "=" in word or word.startswith("-"):
                break
            else:
                run = word
            rest = "".join(following)
        return cls(run, rest, is_forced)

    @property
    def is_needed(self) -> bool:
        """Whether a run that waits can only go on by this, and not by an answer."""
        return bool(self.inputs) or self.is_forced


FROM_WHERE_IT_WAS = Resumption()
"""Nothing is said about how."""

"""The files of an editor, for the agents of steps: with what its user has not saved yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coupler.agent.files import EditorFiles
from coupler.runtime.files import FilePath, OutsideRootsError, find_inside

if TYPE_CHECKING:
    from coupler.agent.turn import Turn


class FilesInEditor(EditorFiles):
    """Those of the editor's session; a step may work elsewhere, too."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn)
        self._session = turn.session

    def has(self, path: FilePath) -> bool:
        """Whether the file is in the directories that the editor has opened."""
        try:
            find_inside(path.shown, self._session.cwd, self._session.roots)
        except (OutsideRootsError, ValueError):
            return False
        return True

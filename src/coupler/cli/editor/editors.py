"""The editors that there are, by the names that people call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from coupler.cli.editor import places
from coupler.cli.editor.places import Place, Surroundings
from coupler.cli.editor.settings import JETBRAINS, VSCODE, ZED, ElispSettings, LuaSettings, Settings


class UnknownEditorError(Exception):
    """No editor is called so."""


class Editor(NamedTuple):
    """An editor, where its settings are, and how they say it."""

    name: str
    title: str
    places: Callable[[Surroundings], Iterator[Place]]
    settings: Settings


EDITORS = (
    Editor("zed", "Zed", places.zed, ZED),
    Editor("neovim", "Neovim, with codecompanion.nvim or avante.nvim", places.neovim, LuaSettings()),
    Editor("jetbrains", "JetBrains IDEs", places.jetbrains, JETBRAINS),
    Editor("emacs", "Emacs, with agent-shell", places.emacs, ElispSettings()),
    Editor("vscode", "Visual Studio Code, with ACP Client", places.vscode, VSCODE),
)

ALIASES = {
    "nvim": "neovim",
    "zed-preview": "zed",
    "code": "vscode",
    "vs-code": "vscode",
    "visual-studio-code": "vscode",
    **dict.fromkeys(("codium", "vscodium", "cursor", "windsurf", "insiders", "code-insiders"), "vscode"),
    **dict.fromkeys(("intellij", "idea", "pycharm", "webstorm", "goland", "clion", "rider"), "jetbrains"),
    **dict.fromkeys(("phpstorm", "rubymine", "rustrover", "datagrip", "android-studio"), "jetbrains"),
    **dict.fromkeys(("doom", "spacemacs", "agent-shell"), "emacs"),
}

_VARIANTS = {
    **dict.fromkeys(("code", "vs-code", "visual-studio-code"), "vscode"),
    "codium": "vscodium",
    "code-insiders": "insiders",
}


def editor_called(name: str) -> Editor:
    """The editor; raises `UnknownEditorError` with the nearest name."""
    plain = _plain(name)
    by_name = {editor.name: editor for editor in EDITORS}
    found = by_name.get(ALIASES.get(plain, plain))
    if found is not None:
        return found
    near = get_close_matches(plain, [*by_name, *ALIASES], 1, 0.5)
    meant = f", did you mean {near[0]}?" if near else ""
    listed = ", ".join(by_name)
    raise UnknownEditorError(f"there are no settings for {name!r}{meant or ':'} There are those for {listed}")


def variant_of(name: str) -> str | None:
    """Which member of a family of editors is meant; None if none is."""
    plain = _plain(name)
    variant = _VARIANTS.get(plain, plain)
    return variant if variant in places.VSCODE_FAMILY else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")

"""Where editors keep their settings: each of their installations has a file of its own.

The paths are those of each editor's manual and source, for Linux, macOS and Windows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from coupler.runtime.directories import home_directory

FLATPAK_ZED = {"dev.zed.Zed": "Zed by Flatpak", "dev.zed.Zed-Preview": "Zed Preview by Flatpak"}
VSCODE_FAMILY = {
    "vscode": ("Code", "Visual Studio Code"),
    "insiders": ("Code - Insiders", "Visual Studio Code Insiders"),
    "vscodium": ("VSCodium", "VSCodium"),
    "cursor": ("Cursor", "Cursor"),
    "windsurf": ("Windsurf", "Windsurf"),
}
FLATPAK_VSCODE = {
    "com.visualstudio.code": ("Code", "Visual Studio Code by Flatpak"),
    "com.vscodium.codium": ("VSCodium", "VSCodium by Flatpak"),
}


class Place(NamedTuple):
    """A file of settings, and whose it is."""

    title: str
    file: Path
    is_there: bool
    """Whether the editor has been used here: its directory exists."""
    variant: str | None = None
    """Which member of a family it belongs to."""
    is_sandboxed: bool = False
    """Whether the editor's programs run in a sandbox."""


class NoPlaceError(Exception):
    """This user has no home directory."""


class Surroundings(NamedTuple):
    """What decides where things are."""

    home: Path
    environ: Mapping[str, str]
    platform: str

    @classmethod
    def of_this_user(cls) -> Surroundings:
        """Raises `NoPlaceError` for a user without a home."""
        home = home_directory(os.environ)
        if home is None:
            raise NoPlaceError("this user has no home directory: name the file of settings with --file")
        return cls(Path(home), os.environ, sys.platform)

    def directory(self, variable: str, usual: str) -> Path:
        """The directory that a variable names, else the usual one below the home."""
        named = self.environ.get(variable, "")
        return Path(named) if Path(named).is_absolute() else self.home / usual

    @property
    def config(self) -> Path:
        """Where programs keep their settings."""
        if self.platform == "win32":
            return self.directory("APPDATA", "AppData/Roaming")
        return self.directory("XDG_CONFIG_HOME", ".config")

    @property
    def is_linux(self) -> bool:
        return self.platform not in ("win32", "darwin")


def zed(around: Surroundings) -> Iterator[Place]:
    """Zed and Zed Preview share their settings, but for those that Flatpak has installed."""
    if around.platform == "win32":
        main = around.config / "Zed"
    elif around.platform == "darwin":
        main = around.home / ".config" / "zed"
    else:
        main = around.directory("FLATPAK_XDG_CONFIG_HOME", str(around.config)) / "zed"
    yield _place("Zed", main / "settings.json")
    if around.is_linux:
        for name, title in FLATPAK_ZED.items():
            file = _flatpak(around, name) / "zed" / "settings.json"
            if file.parent.is_dir() and file.parent != main:
                yield _place(title, file)


def vscode(around: Surroundings) -> Iterator[Place]:
    """Visual Studio Code, and editors that are made of it."""
    base = around.home / "Library/Application Support" if around.platform == "darwin" else around.config
    for variant, (folder, title) in VSCODE_FAMILY.items():
        yield _place(title, base / folder / "User" / "settings.json", variant)
    if around.is_linux:
        for name, (folder, title) in FLATPAK_VSCODE.items():
            file = _flatpak(around, name) / folder / "User" / "settings.json"
            if file.parent.is_dir():
                variant = "vscode" if folder == "Code" else "vscodium"
                yield Place(title, file, is_there=True, variant=variant, is_sandboxed=True)


def jetbrains(around: Surroundings) -> Iterator[Place]:
    """One file for all IDEs; they make it when the first agent is added."""
    file = around.home / ".jetbrains" / "acp.json"
    used = (file.parent, _jetbrains_options(around))
    yield Place("JetBrains IDEs", file, any(each.is_dir() for each in used))


def neovim(around: Surroundings) -> Iterator[Place]:
    """Its directory of settings; each agent gets a file below it."""
    name = around.environ.get("NVIM_APPNAME") or "nvim"
    if around.platform == "win32":
        base = around.directory("XDG_CONFIG_HOME", "") if "XDG_CONFIG_HOME" in around.environ else None
        directory = (base or around.directory("LOCALAPPDATA", "AppData/Local")) / name
    else:
        directory = around.config / name
    yield Place("Neovim", directory, directory.is_dir())


def emacs(around: Surroundings) -> Iterator[Place]:
    """Its directory of settings: the old one is used as long as it is there."""
    home = around.directory("APPDATA", "AppData/Roaming") if around.platform == "win32" else around.home
    old, new = home / ".emacs.d", around.config / "emacs"
    is_old = old.is_dir() or (home / ".emacs").exists() or not new.is_dir()
    yield Place("Emacs", old if is_old else new, old.is_dir() or new.is_dir() or (home / ".emacs").exists())


def _place(title: str, file: Path, variant: str | None = None) -> Place:
    return Place(title, file, file.parent.is_dir(), variant)


def _flatpak(around: Surroundings, name: str) -> Path:
    return around.home / ".var" / "app" / name / "config"


def _jetbrains_options(around: Surroundings) -> Path:
    if around.platform == "darwin":
        return around.home / "Library/Application Support/JetBrains"
    return around.config / "JetBrains"

"""Where editors keep their settings, on systems that these tests do not run on."""

from __future__ import annotations

from pathlib import Path

from coupler.cli.editor import editor_settings
from coupler.cli.editor.editor_settings import UserPlatform
from tables import table

HOME = Path("/home/ann")
WINDOWS = {"APPDATA": "/roaming", "LOCALAPPDATA": "/local"}


@table(
    ("editor", "platform", "environ", "expected"),
    [
        ("zed", "linux", {}, "/home/ann/.config/zed/settings.json"),
        ("zed", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/zed/settings.json"),
        ("zed", "linux", {"XDG_CONFIG_HOME": "relative"}, "/home/ann/.config/zed/settings.json"),
        ("zed", "linux", {"FLATPAK_XDG_CONFIG_HOME": "/f"}, "/f/zed/settings.json"),
        ("zed", "darwin", {"XDG_CONFIG_HOME": "/x"}, "/home/ann/.config/zed/settings.json"),
        ("zed", "win32", WINDOWS, "/roaming/Zed/settings.json"),
        ("vscode", "linux", {}, "/home/ann/.config/Code/User/settings.json"),
        ("vscode", "darwin", {}, "/home/ann/Library/Application Support/Code/User/settings.json"),
        ("vscode", "win32", WINDOWS, "/roaming/Code/User/settings.json"),
        ("jetbrains", "linux", {}, "/home/ann/.jetbrains/acp.json"),
        ("jetbrains", "win32", WINDOWS, "/home/ann/.jetbrains/acp.json"),
        ("neovim", "linux", {}, "/home/ann/.config/nvim"),
        ("neovim", "linux", {"NVIM_APPNAME": "other"}, "/home/ann/.config/other"),
        ("neovim", "win32", WINDOWS, "/local/nvim"),
        ("neovim", "win32", {**WINDOWS, "XDG_CONFIG_HOME": "/x"}, "/x/nvim"),
        ("emacs", "linux", {}, "/home/ann/.emacs.d"),
        ("emacs", "win32", WINDOWS, "/roaming/.emacs.d"),
    ],
)
def test_each_system_has_its_own_place(editor, platform, environ, expected):
    first, *_ = getattr(editor_settings, editor)(UserPlatform(HOME, environ, platform))
    assert first.file == Path(expected)

"""What the tests of `coupler editor` begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.editor.editor_stage import AGENT, ZED


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path.resolve() / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "NVIM_APPNAME", "FLATPAK_XDG_CONFIG_HOME", "COUPLER_HOME", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def app(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = home.parent / "project"
    project.mkdir()
    (project / "app.py").write_text(AGENT)
    monkeypatch.chdir(project)
    return project / "app.py"


@pytest.fixture
def settings(home: Path) -> Path:
    file = home / ".config" / "zed" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text(ZED)
    return file

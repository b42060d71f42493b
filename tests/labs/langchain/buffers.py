"""An editor's files: what is open in it and not saved, before what is on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}
"""What such an editor offers."""


class Buffers:
    """Answers what an agent asks of an editor's files; what is written stays unsaved."""

    def __init__(self, cwd: Path, **texts: str) -> None:
        self.texts: dict[str, str] = {}
        self.cwd = cwd
        for name, text in texts.items():
            self.type(name.replace("__", "/").replace("_", "."), text)

    def type(self, name: str, text: str) -> None:
        """The user changes a file, and does not save it."""
        self.texts[str(self.cwd / name)] = text

    def __call__(self, frame: dict[str, Any]) -> dict[str, Any]:
        params = frame["params"]
        path = params["path"]
        if frame["method"] == "fs/write_text_file":
            self.texts[path] = params["content"]
            return {"result": {}}
        if path in self.texts:
            text = self.texts[path]
        elif Path(path).is_file():
            text = Path(path).read_bytes().decode()
        else:
            return {"error": {"code": -32002, "message": "Resource not found"}}
        first = params.get("line", 1) - 1
        lines = text.splitlines(keepends=True)
        return {"result": {"content": "".join(lines[first:][: params.get("limit")])}}

"""Writes the packages of docs/architecture.md from the docstrings of packages and modules.

The order is that of the layers in pyproject.toml, lowest first.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pages

SOURCE = pages.ROOT / "src" / "coupler"


def main(arguments: Sequence[str]) -> int:
    return pages.update({"architecture.md": {"packages": "\n\n".join(sections())}}, arguments)


def sections() -> Iterator[str]:
    """Yield a section for each layer, with the modules of those that are packages."""
    for name in layers():
        place = SOURCE / name
        if place.is_dir():
            yield f"### `{name}/`\n\n{docstring(place / '__init__.py')}\n\n{modules_of(place)}"
        else:
            yield f"### `{name}.py`\n\n{docstring(place.with_suffix('.py'))}"


def layers() -> list[str]:
    """The packages and modules that the contract names, lowest first; it must name all there are."""
    project = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    named = re.findall(r"coupler\.(\w+)", " ".join(reversed(contract["layers"])))
    there = {file.stem for file in SOURCE.iterdir() if is_part(file)}
    if missing := there - set(named):
        raise ValueError(f"no layer of pyproject.toml names {', '.join(sorted(missing))}")
    return [name for name in named if name in there]


def is_part(file: Path) -> bool:
    return not file.stem.startswith("__") and (file.suffix == ".py" or (file / "__init__.py").exists())


def modules_of(package: Path) -> str:
    return pages.table(["module", "what it does"], rows_of(package))


def rows_of(package: Path, prefix: str = "") -> Iterator[tuple[str, str]]:
    """A row a module, those of packages inside with the package's name before theirs."""
    for file in sorted(package.iterdir(), key=lambda file: (file.is_dir(), file.stem)):
        if is_part(file) and file.is_dir():
            yield f"**`{prefix}{file.name}/`**", first_line(file / "__init__.py")
            yield from rows_of(file, f"{prefix}{file.name}/")
        elif is_part(file):
            yield f"`{prefix}{file.stem}`", first_line(file)


def first_line(file: Path) -> str:
    return docstring(file).partition("\n\n")[0].replace("\n", " ")


def docstring(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not text:
        raise ValueError(f"{file} has no docstring")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

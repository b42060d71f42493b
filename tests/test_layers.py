"""The layers of the architecture: what may import what."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tables import table

SOURCE = Path(__file__).parent.parent / "src" / "coupler"

# What each of the lowest layers may import besides the standard library and what stands below it.
ALLOWED = {
    "wire": {"msgspec"},
    "schema": {"msgspec"},
    "config": {"msgspec"},
    "runtime": {"msgspec"},
    "store": {"msgspec"},
    "mcp": {"msgspec", "mcp", "mcp_types", "anyio", "httpx2", "pydantic", "uvicorn"},
}


def imported_packages(package: str) -> Iterator[tuple[str, str]]:
    """Every absolute import in a package, at module level or not, as (place, top-level package)."""
    for file in sorted((SOURCE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            place = f"{file.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            match node:
                case ast.Import(names=names):
                    yield from ((place, name.name.partition(".")[0]) for name in names)
                case ast.ImportFrom(module=str(module), level=0):
                    yield place, module.partition(".")[0]


def test_the_contracts_of_the_layers_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=SOURCE.parent.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@table("package", ALLOWED)
def test_a_low_layer_imports_the_standard_library_and_little_else(package: str) -> None:
    allowed = ALLOWED[package] | sys.stdlib_module_names | {"coupler"}
    assert [found for found in imported_packages(package) if found[1] not in allowed] == []

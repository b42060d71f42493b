"""What is loaded when: start-up pays for class definitions only."""

from __future__ import annotations

import subprocess
import sys

import pytest

import coupler.schema
from tables import table


def loaded_after(statements: str) -> set[str]:
    """The modules of a fresh interpreter after some statements."""
    program = f"{statements}\nimport sys\nprint(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(finished.stdout.split())


def test_the_package_alone_loads_no_types() -> None:
    modules = loaded_after("import coupler.schema")
    assert not {name for name in modules if name.startswith(("coupler.schema.", "msgspec"))}


def test_a_type_is_loaded_on_first_use() -> None:
    modules = loaded_after("from coupler.schema import TextContent\nTextContent('hello')")
    assert "coupler.schema.v1" in modules
    assert not modules & {"coupler.schema.methods", "coupler.schema.decoding", "coupler.schema.unstable"}


def test_a_successful_decode_loads_neither_the_lenient_reader_nor_its_tables() -> None:
    modules = loaded_after(
        "from coupler.schema import METHODS, decode\n"
        """raw = b'{"cwd": "/", "mcpServers": [{"name": "n", "command": "/c", "args": [], "env": []}]}'\n"""
        "decode(METHODS['session/new'].params, raw, 'agent')"
    )
    assert "coupler.schema.decoding" in modules
    assert not modules & {
        "coupler.schema.lenient",
        "coupler.schema.markers",
        "logging",
    }


@table(
    "name", ["decode", "DecodingError", "METHODS", "Method", "method_for", "offers", "Unknown", "ToolKind"]
)
def test_the_package_offers(name: str) -> None:
    assert getattr(coupler.schema, name) is getattr(coupler.schema, name)


@table("name", ["Usage", "Mapping", "nothing", "__wrapped__"])
def test_the_package_does_not_offer(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(coupler.schema, name)

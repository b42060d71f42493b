"""Write the keys of coupler.toml into docs/configuration.md and docs/agents-catalogue.md, from the code.

python scripts/generate_config_docs.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from coupler.config import agent_tables
from coupler.config import agent_tables as server_tables
from coupler.config.keys import SCHEMA
from coupler.config.value_kinds import TableKey
from pages import table, update

SETTER_WORDS = {
    "user": "the user",
    "trusted project": "the user, a trusted project",
    "project": "the user, any project",
}


def main(arguments: list[str]) -> int:
    trusted = ", ".join(f"`{key.name}`" for key in SCHEMA.keys if key.setter == "trusted project")
    configuration = {
        "keys": keys(),
        "keys of mcp": keys_of_tables(server_tables.SERVER_KEYS),
        "keys that need trust": f"These keys need trust: {trusted}.",
    }
    catalogue = {"keys of agents": keys_of_tables(agent_tables.AGENT_KEYS)}
    return update({"configuration.md": configuration, "agents-catalogue.md": catalogue}, arguments)


def keys() -> str:
    """A table of all keys that have one name."""
    rows = []
    for key in SCHEMA.keys:
        default = key.default_words or f"`{json.dumps(key.default)}`"
        variable = f"`{key.variable}`" if key.variable is not None else ""
        setter = SETTER_WORDS[key.setter]
        rows.append((f"`{key.name}`", key.kind.words, default, setter, variable, key.sentence))
    return table(("key", "value", "default", "set by", "variable", "what it does"), rows)


def keys_of_tables(keys: Mapping[str, TableKey]) -> str:
    """The keys of tables that users name themselves. Links are from the manual's directory."""
    rows = [(f"`{name}`", key.words, key.sentence) for name, key in keys.items()]
    return table(("key", "value", "what it does"), rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

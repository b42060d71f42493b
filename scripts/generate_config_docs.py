"""Write the keys of coupler.toml into docs/configuration.md and docs/agents-catalogue.md, from the code.

python scripts/generate_config_docs.py [--check]
"""

from __future__ import annotations

import json
import sys

from msgspec import Struct

from coupler.config.agent_tables import AgentTable, ServerTable
from coupler.config.keys import Settings, schema_of
from coupler.fields.tables import keys_of
from pages import table, update

SETTER_WORDS = {
    "user": "the user",
    "trusted project": "the user, a trusted project",
    "project": "the user, any project",
}


def main(arguments: list[str]) -> int:
    to_trust = [key for key in schema_of(Settings).keys if key.setter == "trusted project"]
    trusted = ", ".join(f"`{key.name}`" for key in to_trust)
    configuration = {
        "keys": keys(),
        "keys of mcp": keys_of_tables(ServerTable),
        "keys that need trust": f"These keys need trust: {trusted}.",
    }
    catalogue = {"keys of agents": keys_of_tables(AgentTable)}
    return update({"configuration.md": configuration, "agents-catalogue.md": catalogue}, arguments)


def keys() -> str:
    """A table of all keys that have one name."""
    rows = []
    for key in schema_of(Settings).keys:
        default = key.default or f"`{json.dumps(key.unset)}`"
        variable = f"`{key.variable}`" if key.variable is not None else ""
        setter = SETTER_WORDS[key.setter]
        # How tables are written is told behind a colon, for errors.
        words = key.shape.words.partition(": write")[0]
        rows.append((f"`{key.name}`", words, default, setter, variable, key.sentence))
    return table(("key", "value", "default", "set by", "variable", "what it does"), rows)


def keys_of_tables(struct: type[Struct]) -> str:
    """The keys of tables that users name themselves. Links are from the manual's directory."""
    rows = [(f"`{key.name}`", key.shape.words, key.sentence) for key in keys_of(struct)]
    return table(("key", "value", "what it does"), rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

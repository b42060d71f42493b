"""Agents that are wrong in one way each: `python faulty.py NAME` serves one, without a name it lists them."""

from __future__ import annotations

import sys

import faulty_connection
import faulty_sessions
import faulty_settings
import faulty_tools
import faulty_turns
from fault import Fault
from model import run

MODULES = (faulty_connection, faulty_sessions, faulty_settings, faulty_turns, faulty_tools)
FAULTS: dict[str, type[Fault]] = {
    value.name(): value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Fault) and value is not Fault
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(FAULTS[sys.argv[1]]())
    else:
        for name, fault in FAULTS.items():
            print(fault.assertion, name, fault.__doc__, sep="\t")

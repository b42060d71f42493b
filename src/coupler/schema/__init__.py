"""Defines ACP's types, and decodes JSON into them.

`v1` and `unstable` are generated from the protocol's JSON Schema, on the base classes in `base`; `methods`
says which type belongs to which method. `decoding` reads a message strictly; what fails is read again by
`lenient`, by the rules in `markers`. Everything loads on first use: `from coupler.schema import TextContent`
takes it from `v1`. Drafts have to be asked for, in `coupler.schema.unstable`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.schema.base import DecodingError as DecodingError
    from coupler.schema.base import Unknown as Unknown
    from coupler.schema.decoding import decode as decode
    from coupler.schema.methods import METHODS as METHODS
    from coupler.schema.methods import Method as Method
    from coupler.schema.methods import method_for as method_for
    from coupler.schema.methods import offers as offers
    from coupler.schema.v1 import *  # noqa: F403

_HOMES = {
    "METHODS": "methods",
    "DecodingError": "base",
    "Method": "methods",
    "Unknown": "base",
    "decode": "decoding",
    "method_for": "methods",
    "offers": "methods",
}


def __getattr__(name: str) -> Any:
    # Only types are capitalized: asking for a submodule or a dunder must not load them.
    home = _HOMES.get(name) or ("v1" if name[:1].isupper() else None)
    if home:
        module = import_module(f"{__name__}.{home}")
        if name in _HOMES or name in module.__all__:
            value = globals()[name] = getattr(module, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

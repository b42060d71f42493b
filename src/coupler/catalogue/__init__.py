"""The catalogue: agents by name, how each is started here, and what to install if it is not there.

`connect("claude")` looks here, and so do the commands. A name means the agent's ACP form, or else its native
one; `claude:acp` and `claude:native` insist. What `[agents.NAME]` of `coupler.toml` says goes first.
"""

from coupler.catalogue.choice import Chosen, Form, choose, chosen_for
from coupler.catalogue.entry import Entry, Launcher
from coupler.catalogue.lookup import entries, find, is_coder, joined

__all__ = [
    "Chosen",
    "Entry",
    "Form",
    "Launcher",
    "choose",
    "chosen_for",
    "entries",
    "find",
    "is_coder",
    "joined",
]

"""What happens in a session, in Coupler's own words: one vocabulary for agents, clients and records.

An agent emits events, a client receives them; how a version of the protocol spells them is known to the
projections beside this file and to nobody else.
"""

from coupler.events.events import (
    Commands,
    Compaction,
    CompactionSummary,
    Content,
    Event,
    Info,
    Mode,
    Notice,
    Options,
    Other,
    Plan,
    Stop,
    Text,
    Thought,
    ToolCall,
    ToolOutput,
    ToolUpdate,
    Usage,
)

__all__ = [
    "Commands",
    "Compaction",
    "CompactionSummary",
    "Content",
    "Event",
    "Info",
    "Mode",
    "Notice",
    "Options",
    "Other",
    "Plan",
    "Stop",
    "Text",
    "Thought",
    "ToolCall",
    "ToolOutput",
    "ToolUpdate",
    "Usage",
]

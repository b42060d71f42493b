"""Typed events of a session, shared by agents, clients and the store.

An agent emits events, a client receives them. `events` has the types; `v1_codec` converts them to and from
the updates of protocol version 1, and is the only module that knows how that version spells them; `records`
converts them to and from what the store keeps.
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

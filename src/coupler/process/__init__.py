"""Child processes: started in a group of their own, heard until their last word, ended without orphans.

Knows nothing of JSON-RPC or ACP: a `Child` hands out two file descriptors, and a transport takes them.
"""

from coupler.process.child import Child
from coupler.process.command import split_command
from coupler.process.environment import Environment
from coupler.process.errors import SpawnError, SpawnErrorKind
from coupler.process.job import Job

__all__ = ["Child", "Environment", "Job", "SpawnError", "SpawnErrorKind", "split_command"]

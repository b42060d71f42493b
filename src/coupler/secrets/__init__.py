"""What is secret, and the one masker that keeps it from people and files.

Whatever people or files get to see passes a `Masker` (a whole text) or a `Stream` (a text in pieces) before
it is encoded; `payloads` lists what passes neither. Nothing here waits, reads a file or knows a protocol.
"""

from coupler.secrets.masker import Masker
from coupler.secrets.secret import Secret
from coupler.secrets.source import declared_secrets, looks_secret, secrets_in_environment
from coupler.secrets.stream import Stream

__all__ = ["Masker", "Secret", "Stream", "declared_secrets", "looks_secret", "secrets_in_environment"]

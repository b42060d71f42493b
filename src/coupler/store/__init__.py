"""What lasts: one SQLite file that keeps sessions and everything that happened in them.

Knows neither events nor agents: an entry is a kind, a key and a body. Importing this package costs next to
nothing; `coupler.store.store.Store` brings sqlite3 along and is imported where the first session is made.
"""

from coupler.store.errors import CursorError, HeldError, StoreError, StoreErrorKind

__all__ = ["CursorError", "HeldError", "StoreError", "StoreErrorKind"]

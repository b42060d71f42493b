"""Stores sessions, runs, permission choices and trust in one SQLite file.

`store` is what agents and commands use. `journal` gathers what happens in sessions, and `journal_writer`
writes it in batches; `sessions`, `runs`, `choices` and `leases` are blocking functions on a given connection;
`database` has the file and its schema, and decides whether these run on the event loop or on the
`store_thread`. `retention` deletes what the user's rules do not keep, and `space` makes the file smaller;
`carry_over` lets open sessions go on when the file was replaced. The store knows neither events nor agents:
an entry is a kind, a key and a body. Importing this package costs next to nothing;
`coupler.store.store.Store` brings sqlite3 along and is imported where the first session is made.
"""

from coupler.store.errors import CursorError, HeldError, StoreError, StoreErrorKind

__all__ = ["CursorError", "HeldError", "StoreError", "StoreErrorKind"]

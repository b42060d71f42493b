"""Which projects the user has trusted: asked when a project's file sets something that needs it.

`coupler trust` writes into the user's own store, whichever file keeps the sessions of this agent, or none.
"""

from __future__ import annotations

import logging
import os

log = logging.getLogger("coupler.agent")


class KeptTrust:
    """Looks into the user's store. What cannot be read is not trusted."""

    def is_trusted(self, path: str, content: bytes) -> bool:
        """Whether the file at this real path was trusted with exactly this content."""
        # Imported on use: most projects set nothing that needs trust.
        from coupler.config import keys, load
        from coupler.runtime.directories import NoHomeError, store_file
        from coupler.store.choices import Trust
        from coupler.store.database import Database
        from coupler.store.errors import StoreError

        try:
            file = load(None, environ=os.environ)[keys.STORE] or store_file()
            if not os.path.exists(file):
                return False
            database = Database(file)
        except (StoreError, NoHomeError) as error:
            log.warning("%s is not trusted, because the user's store cannot be read: %s", path, error)
            return False
        try:
            return Trust(database).is_trusted(path, content)
        except StoreError as error:
            log.warning("%s is not trusted, because the user's store cannot be read: %s", path, error)
            return False
        finally:
            database.close()

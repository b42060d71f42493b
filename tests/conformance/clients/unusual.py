"""Clients that are right in an unusual way: unusual.py NAME COMMAND…; UNUSUAL says who might mind."""

import os
import sys
from pathlib import Path

from raw import RawClient, main

UNUSUAL = {}


def unusual(id):
    """Note which assertion must not take this for a fault."""

    def register(kind):
        UNUSUAL[kind.__name__] = (id, kind)
        return kind

    return register


@unusual("C13")
class WritesBesideAndRenames(RawClient):
    """Puts a new file in the place of the old one, so that a link is replaced and not followed."""

    def write_file(self, params):
        place = Path(params["path"])
        folder = self.inside(place.parent)
        beside = folder / f"{place.name}.new"
        beside.write_text(params["content"])
        beside.replace(folder / place.name)
        return {}


@unusual("C20")
class ListsTwice(RawClient):
    def list_sessions(self, hello):
        super().list_sessions(hello)
        super().list_sessions(hello)


@unusual("X03")
class LeavesInsteadOfAnswering(RawClient):
    """Nobody is owed an answer by somebody who has left."""

    def permit(self, params):
        self.process.kill()
        os._exit(1)


@unusual("X04")
class NullForNothing(RawClient):
    def reply(self, request, **answer):
        super().reply(request, **({"result": None} if answer.get("result") == {} else answer))


if __name__ == "__main__":
    main(UNUSUAL[sys.argv[1]][1], sys.argv[2:])

"""`coupler` with another table of models that can be fetched: that of the JSON in a variable.

The model of the real table is 93 MB; what is done with it is the same.
"""

from __future__ import annotations

import json
import os
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Any, cast

from coupler.__main__ import main
from coupler.cli.models import model_packages
from coupler.coder.model import local_files

known = cast("dict[str, Any]", local_files.KNOWN_MODELS)
known.clear()
known.update(
    {each["name"]: local_files.KnownModel(**each) for each in json.loads(os.environ["COUPLER_TEST_KNOWN"])}
)
place = os.environ.get("COUPLER_TEST_ENGINE_PLACE")
if place is not None:
    # Whether this environment has what runs models, or not.
    model_packages.find_spec = lambda name: (  # type: ignore[assignment]
        PathFinder.find_spec(name, [place]) if name == local_files.ENGINE else find_spec(name)
    )
main()

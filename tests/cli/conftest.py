"""What the tests of the command line share: they start programs, and most of them not to be measured."""

import pytest


@pytest.fixture(autouse=True)
def _unmeasured(unmeasured: None) -> None:
    """What these programs run is measured in other tests."""

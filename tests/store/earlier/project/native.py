"""A vendor's command line, played by bin/claude."""

from coupler.providers import Claude

agent = Claude()

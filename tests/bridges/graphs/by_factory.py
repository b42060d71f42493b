"""A graph for each session, which knows where the session works."""

from bridges.graphs.shapes import factory
from coupler import serve

serve(factory=factory)

"""A graph for each session, which knows where the session works."""

from coupler import serve
from labs.langchain.graphs.shapes import factory

serve(factory=factory)

"""Expressions and templates: Jinja2's language, evaluated with every operation bounded.

A text and the names of a run come in, and a text or a value goes out. `expression` is the interface for the
engine, and finds the names that a template uses. `evaluation` parses with Jinja2, refuses what the language
leaves out, and goes through the parsed nodes; `filters` has the filters and tests, and `values` the operators
and methods, the limits, and the conversion to text and JSON.
"""

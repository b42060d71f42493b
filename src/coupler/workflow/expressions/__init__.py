"""Expressions and templates: Jinja2's language, evaluated with every step of it bounded."""

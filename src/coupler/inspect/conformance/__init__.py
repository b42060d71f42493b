"""The conformance kit: assertions about agents and clients, how they are examined, and the report.

Each assertion is one small function in a module of `agent/` or `client/`; adding one touches that file alone.
"""

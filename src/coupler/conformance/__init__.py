"""The conformance kit: scripted peers, assertions about agents and clients, and reports."""

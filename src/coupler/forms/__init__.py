"""Forms: the fields that can be asked for, how a value is checked, and which pages may be shown.

Both sides of the protocol need that: an agent checks what came back, a client what it is about to send.
"""

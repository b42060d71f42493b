"""Taking down what two peers say, beside them: what passes is noted, and a process of its own writes it.

That process, which understands what was said, is `coupler.inspect.record_writer`; it is started by its name.
"""

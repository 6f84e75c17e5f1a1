"""The official conformance suite, against servers directly and through the hub.

`fixture` is a server that passes all of it, `suite` runs it and reads what it found, `compare` says what the hub lost.
"""

"""Pure state: synchronous, no I/O, with the clock and the ids as arguments.

Every mutation is one method, an impossible transition raises, reads return frozen records. One `SessionState`
(`state.py`) holds all that the hub knows for one client; the shell around it is `emceepee.hub.session`.
"""

"""Programs that emceepee did not write, and how the tests find and drive them.

`scripts/peers` installs them from the pins in this folder into `.peers`; `locate` says where they are, `drive` talks to
the small clients in `programs`, which run on other people's SDKs.
"""

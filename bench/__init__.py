"""What the hub adds to a call, measured: `scripts/bench`, or `python -m bench`.

One run starts the demo server and the hub as processes and has the official SDK's client call `echo` directly and
through the hub, in rounds that alternate, so that whatever else the machine does falls on both alike. `processes`
starts things and reads their CPU time, `calls` is the two ways to call, `rounds` does the timed passes, `connections`
the separate pass that counts TCP connections, `report` turns samples into a table.

Read the ratio beside the connections: the SDK's client drops the connection after every SSE response, so a way whose
answers come as plain JSON saves it a connection, and part of its CPU time, on each call.
"""

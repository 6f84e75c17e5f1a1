"""What faces clients: Streamable HTTP and stdio.

A front takes messages off its wire, serves each request through the `Endpoint`, and tells the tool that runs for a
request when its client hangs up. What the tools do is no business of this package.
"""

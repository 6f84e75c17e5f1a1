"""What faces clients: Streamable HTTP and stdio.

A front takes messages off its wire, has each request answered by the `Service` that its client asked for, and tells
that service when the client hangs up. What the tools do is no business of this package.
"""

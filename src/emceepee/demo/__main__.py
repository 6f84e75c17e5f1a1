"""`python -m emceepee.demo`: the demo server over stdio, or over Streamable HTTP with `--port`."""

import argparse

from emceepee.demo.server import run_http, run_stdio


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m emceepee.demo", description="An MCP server to try things on.")
    parser.add_argument("--port", type=int, help="serve Streamable HTTP at /mcp on this port (0 picks a free one)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on with --port")
    options = parser.parse_args()
    if options.port is None:
        run_stdio()
    else:
        run_http(options.host, options.port)


if __name__ == "__main__":
    main()

"""`python -m tests.scale`: simulate a cluster's nodes against one API server and print what the server saw."""

import argparse
import json
import logging
import sys

import anyio
import structlog

from tests.contract.control_plane import assets
from tests.scale.report import table
from tests.scale.scenario import simulate


def main() -> None:
    """Run the scenario with the command line's numbers."""
    parser = argparse.ArgumentParser(prog="python -m tests.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200, help="simulated nodes")
    parser.add_argument("--rack", type=int, default=40, help="nodes whose USB hubs lose power")
    parser.add_argument("--down", type=float, default=5.0, help="seconds for which the API server is away")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    chosen = parser.parse_args()
    found = assets()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    phases = anyio.run(
        lambda: simulate(nodes=chosen.nodes, rack=chosen.rack, down_s=chosen.down, assets=found),
        backend_options={"use_uvloop": True},
    )
    if chosen.json:
        json.dump([phase.numbers() for phase in phases], sys.stdout, indent=2)
    else:
        sys.stdout.write(
            table(phases, nodes=chosen.nodes, server="kube-apiserver" if found else "the in-memory server")
        )


if __name__ == "__main__":
    main()

"""What can be seen of a running hub: snapshots, diagrams, metrics and logs. Nothing here changes anything."""

from emceepee.observe.diagrams import diagrams
from emceepee.observe.logs import configure_logging
from emceepee.observe.metrics import CONTENT_TYPE, Metrics
from emceepee.observe.snapshots import HubSnapshot, LinkSnapshot, SessionSnapshot, snapshot_of, snapshot_of_session

__all__ = [
    "CONTENT_TYPE",
    "HubSnapshot",
    "LinkSnapshot",
    "Metrics",
    "SessionSnapshot",
    "configure_logging",
    "diagrams",
    "snapshot_of",
    "snapshot_of_session",
]

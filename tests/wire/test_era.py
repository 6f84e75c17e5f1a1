"""What an era adds to a request."""

from __future__ import annotations

from emceepee.protocol import TASKS_EXTENSION
from emceepee.wire.era import HandshakeEra, Identity, ModernEra, with_tasks


def test_a_request_that_may_become_a_task_declares_the_extension_and_is_otherwise_the_same() -> None:
    era = ModernEra(Identity({"name": "us"}, {"roots": {}}), version="2027-01-01")
    declared = Identity({"name": "us"}, {"roots": {}, "extensions": {TASKS_EXTENSION: {}}})
    assert with_tasks(era) == ModernEra(declared, version="2027-01-01")


def test_the_handshake_era_has_nothing_to_declare_with_a_request() -> None:
    era = HandshakeEra("2025-11-25")
    assert with_tasks(era) is era

"""Places of hubs that keep nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from emceepee.store import abandoned_places, claimed_place

LIMIT_S = 30
CLAIM = """
import sys, time
from pathlib import Path
from emceepee.store import claimed_place
with claimed_place(Path(sys.argv[1])) as place:
    print(place, flush=True)
    time.sleep(600)
"""


def abandoned(directory: Path) -> list[str]:
    with abandoned_places(directory) as places:
        return places


def test_a_place_is_abandoned_only_once_its_hub_is_gone_and_found_only_once(tmp_path: Path) -> None:
    directory = tmp_path / "running"
    hub = subprocess.Popen([sys.executable, "-c", CLAIM, str(directory)], stdout=subprocess.PIPE, text=True)
    try:
        assert hub.stdout is not None
        place = hub.stdout.readline().strip()
        assert abandoned(directory) == []
        hub.send_signal(signal.SIGKILL)
        hub.wait(LIMIT_S)
        assert abandoned(directory) == [place]
        assert abandoned(directory) == []
    finally:
        hub.kill()
        hub.communicate(timeout=LIMIT_S)


def test_each_hub_has_a_place_of_its_own_and_leaves_nothing(tmp_path: Path) -> None:
    with claimed_place(tmp_path) as one, claimed_place(tmp_path) as two:
        assert one != two
        assert abandoned(tmp_path) == []
    assert os.listdir(tmp_path) == []


def test_what_an_abandoned_place_is_good_for_can_be_done_by_the_next_if_we_are_killed_too(tmp_path: Path) -> None:
    (tmp_path / "gone.hub").touch()
    with abandoned_places(tmp_path) as mine:
        assert mine == [str(tmp_path / "gone.hub")]
        assert abandoned(tmp_path) == []  # it is seen to already
        assert os.listdir(tmp_path) == ["gone.hub"]
    assert os.listdir(tmp_path) == []


def test_a_hub_starts_also_where_no_place_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert abandoned(tmp_path / "file" / "running") == []
    with claimed_place(tmp_path / "file" / "running") as place:
        assert place is None

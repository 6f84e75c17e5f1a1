"""Task groups whose body does not notice that it is in one."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from emceepee.concurrency import companions, task_group

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("error", [ValueError("wrong"), SystemExit("that was all")])
async def test_what_the_body_raises_comes_out_as_it_is(error: BaseException) -> None:
    async def body() -> None:
        async with task_group() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            raise error

    with pytest.raises(type(error)) as raised:
        await body()
    assert raised.value is error


async def test_companions_end_with_the_body() -> None:
    ended = anyio.Event()

    async def companion() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with companions() as tasks:
        tasks.start_soon(companion)
        await anyio.lowlevel.checkpoint()
    assert ended.is_set()

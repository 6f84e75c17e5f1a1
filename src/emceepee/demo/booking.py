"""Booking a table: the two forms that `book_table` shows and what becomes of the answers.

The questions are the SDK's resolvers, so that one definition serves both eras: a handshake client is asked with
`elicitation/create` on the call's own stream while the call is open, a modern client gets an `input_required` result
and retries with the answers.
"""

import datetime
from typing import Annotated, Any

from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, Resolve
from pydantic import BaseModel, Field

__all__ = ["Confirmation", "Slot", "ask_to_confirm", "ask_when", "book_table"]


class Slot(BaseModel):
    """The first form: when the guests come."""

    date: datetime.date = Field(title="Date", description="The day of the dinner, for example 2030-05-17")
    time: str = Field(title="Time", description="When you will arrive, for example 19:30")


class Confirmation(BaseModel):
    """The second form: yes or no, and anything the kitchen should know."""

    confirm: bool = Field(title="Book it", description="Yes books the table, no leaves everything as it is")
    note: str | None = Field(default=None, title="Note", description="Allergies, a birthday, a quiet corner")


Guests = Annotated[int, Field(ge=1, le=1000, description="How many people are coming")]


async def ask_when(guests: Guests) -> Elicit[Slot]:
    return Elicit(f"When would you like a table for {guests}?", Slot)


async def ask_to_confirm(
    guests: Guests, slot: Annotated[ElicitationResult[Slot], Resolve(ask_when)]
) -> Elicit[Confirmation] | Confirmation:
    """Ask for the final word, unless no time was given: then there is nothing to confirm."""
    if not isinstance(slot, AcceptedElicitation):
        return Confirmation(confirm=False)
    return Elicit(f"A table for {guests} on {slot.data.date} at {slot.data.time}. Shall I book it?", Confirmation)


async def book_table(
    slot: Annotated[ElicitationResult[Slot], Resolve(ask_when)],
    confirmation: Annotated[ElicitationResult[Confirmation], Resolve(ask_to_confirm)],
    guests: Guests = 2,
) -> str:
    if not isinstance(slot, AcceptedElicitation):
        return f"No table was booked: {_reason(slot)} when asked for a date and time. Come back any time."
    if not isinstance(confirmation, AcceptedElicitation):
        return f"No table was booked: {_reason(confirmation)} when asked to confirm. Come back any time."
    if not confirmation.data.confirm:
        return "No table was booked: the answer was no. Come back any time."
    note = f" Note: {confirmation.data.note}." if confirmation.data.note else ""
    return f"Booked: a table for {guests} on {slot.data.date} at {slot.data.time}.{note} See you then!"


def _reason(outcome: ElicitationResult[Any]) -> str:
    return "you declined" if outcome.action == "decline" else "you cancelled"

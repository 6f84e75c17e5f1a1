"""The menu: the demo server's resource, its template and its prompt."""

from mcp.server.mcpserver import Message, UserMessage
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.types import Completion, CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

__all__ = ["complete_dish", "dish", "menu", "plan_dinner"]

DISHES = {
    "soup": "Pumpkin soup with roasted seeds and a little chilli.",
    "pasta": "Tagliatelle with mushrooms, thyme and too much butter.",
    "cake": "Warm chocolate cake; allow fifteen minutes.",
}
"""Short enough to read at a glance, long enough that a list of them is a list."""


def menu() -> str:
    return "\n".join(f"{name}: {description}" for name, description in DISHES.items())


def dish(dish: str) -> str:
    if dish not in DISHES:
        raise ResourceNotFoundError(f"There is no {dish!r} on the menu. Try one of: {', '.join(DISHES)}.")
    return DISHES[dish]


def plan_dinner(occasion: str, guests: str = "2") -> list[Message]:
    return [
        UserMessage(
            f"Plan a dinner for {guests} people. The occasion: {occasion}. Choose dishes from this menu, say why each"
            f" fits, and then book a table with the tool book_table.\n\n{menu()}"
        )
    ]


async def complete_dish(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> Completion | None:
    """Complete the `dish` of the resource template; nothing else has suggestions."""
    if not isinstance(ref, ResourceTemplateReference) or argument.name != "dish":
        return None
    return Completion(values=[name for name in DISHES if name.startswith(argument.value)])

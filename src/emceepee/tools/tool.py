"""What a meta-tool is made of, and its input schema as a model reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from emceepee.config import problems_of
from emceepee.errors import InvalidArguments
from emceepee.jsontext import loads
from emceepee.tools.caller import Caller
from emceepee.tools.reply import Reply

__all__ = ["Input", "JsonArgument", "NoInput", "Tool"]

JsonObject: TypeAlias = dict[str, Any]


class Input(BaseModel):
    """The arguments of a tool; a field that is not there is a mistake worth telling."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoInput(Input):
    pass


def _from_json(value: object) -> object:
    if isinstance(value, str):
        try:
            return loads(value)
        except (ValueError, RecursionError):
            return value
    return value


JsonArgument = Annotated[JsonObject, BeforeValidator(_from_json)]
"""An object; models often send nested objects as a string of JSON, which is taken for what it says."""

_HINT_DEFAULTS = {"readOnlyHint": False, "idempotentHint": False, "openWorldHint": True}
"""What the protocol assumes of a tool that says nothing: saying it would only make the list longer. That a tool may
destroy something is said all the same."""

InputT = TypeVar("InputT", bound=Input)


@dataclass(frozen=True, slots=True)
class Tool(Generic[InputT]):
    name: str
    description: str
    input_type: type[InputT]
    run: Callable[[Caller, InputT], Awaitable[Reply]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False

    def parse(self, arguments: object) -> InputT:
        """
        Raises:
            InvalidArguments: with every problem named.
        """
        if not isinstance(arguments, dict):
            raise InvalidArguments([f"arguments: expected an object, got {type(arguments).__name__}"])
        try:
            return self.input_type.model_validate(arguments)
        except ValidationError as error:
            known = ", ".join(self.input_type.model_fields) or "none"
            raise InvalidArguments(problems_of(error), f"{self.name} takes: {known}.") from None

    async def __call__(self, caller: Caller, arguments: object) -> Reply:
        return await self.run(caller, self.parse(arguments))

    def definition(self) -> JsonObject:
        """The entry in `tools/list`."""
        hints: JsonObject = {"readOnlyHint": self.read_only, "openWorldHint": self.open_world}
        if not self.read_only:
            hints |= {"destructiveHint": self.destructive, "idempotentHint": self.idempotent}
        annotations = {hint: value for hint, value in hints.items() if value != _HINT_DEFAULTS.get(hint)}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": _plain(self.input_type.model_json_schema()),
            **({"annotations": annotations} if annotations else {}),
        }


def _plain(schema: JsonObject) -> JsonObject:
    """A schema without what pydantic adds for itself: titles, and null as the way to leave something out."""
    plain: JsonObject = {}
    for key, value in schema.items():
        if key == "title" or (key == "default" and value is None):
            continue
        if key == "properties":
            plain[key] = {name: _plain(sub) for name, sub in value.items()}
        elif key == "anyOf":
            options = [_plain(option) for option in value if option != {"type": "null"}]
            plain |= options[0] if len(options) == 1 else {"anyOf": options}
        elif isinstance(value, dict):
            plain[key] = _plain(value)
        else:
            plain[key] = value
    return plain

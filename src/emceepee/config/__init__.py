"""Settings, parsed once at the edge into frozen values.

`Settings` is the table of them all and `ServerConfig` an entry of `mcpServers`. `Sources` puts file, environment and
flags together into a `Configuration`, and can do so again when the file has changed; `changes` says what that means for
the servers. Inner code receives only its own part: `HubSettings`, `HttpSettings`.
"""

from emceepee.config.access import AccessSettings, OAuthSettings
from emceepee.config.changes import Changes, changes
from emceepee.config.file import load_servers
from emceepee.config.fingerprint import Fingerprint, Stillness, fingerprint
from emceepee.config.problems import WrongSettings
from emceepee.config.servers import OAuthConfig, ServerConfig, TransportChoice, fitting_name, problems_of
from emceepee.config.settings import Settings
from emceepee.config.sources import Configuration, Sources
from emceepee.config.values import HttpSettings, HubSettings, Patience

__all__ = [
    "AccessSettings",
    "Changes",
    "Configuration",
    "Fingerprint",
    "HttpSettings",
    "HubSettings",
    "OAuthConfig",
    "OAuthSettings",
    "Patience",
    "ServerConfig",
    "Settings",
    "Sources",
    "Stillness",
    "TransportChoice",
    "WrongSettings",
    "changes",
    "fingerprint",
    "fitting_name",
    "load_servers",
    "problems_of",
]

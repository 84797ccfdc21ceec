"""The configuration file: its schema and how it is read."""

from trtspec.config.load import config_of, load_config, load_gates
from trtspec.config.schema import ModelSource, RunConfig
from trtspec.config.section import ROLES, Role

__all__ = ["ROLES", "ModelSource", "Role", "RunConfig", "config_of", "load_config", "load_gates"]

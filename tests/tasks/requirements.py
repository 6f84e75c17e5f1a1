"""The promises that the tests of this folder prove, in the form that `tests/test_requirements.py` looks for."""

from tests.tasks.requirements_tasks import TASK_REQUIREMENTS

__all__ = ["REQUIREMENTS"]

REQUIREMENTS = TASK_REQUIREMENTS

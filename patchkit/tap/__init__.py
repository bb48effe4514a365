# patchkit: tap
"""Observe tensors of a running model: shape, dtype, norm, extremes, non-finite count.

Every call stands under ``if patchkit_tap.ENABLED:``. Nothing here changes a tensor or
raises into the model. The environment variables are listed in ``settings.ENVIRONMENT``.
"""

from .settings import SETTINGS
from .sites import (
    begin,
    tap,
    tap_concat,
    tap_fc_in,
    tap_fc_out,
    tap_parts,
    tap_states,
    tap_stream,
)

__version__ = 1

ENABLED: bool = SETTINGS.enabled

__all__ = [
    "ENABLED",
    "begin",
    "tap",
    "tap_concat",
    "tap_fc_in",
    "tap_fc_out",
    "tap_parts",
    "tap_states",
    "tap_stream",
]

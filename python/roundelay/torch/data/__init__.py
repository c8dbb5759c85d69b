"""Reads each sample from far away once: ``from roundelay.torch.data import DataCache, NodeSampler``."""

from __future__ import annotations

from roundelay.torch.data.cache import DataCache
from roundelay.torch.data.counters import CacheStats, LevelStats
from roundelay.torch.data.sampler import NodeSampler

__all__ = ["CacheStats", "DataCache", "LevelStats", "NodeSampler"]

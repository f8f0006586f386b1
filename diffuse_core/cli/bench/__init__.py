"""`diffuse bench`: how fast a live network is, asked as `query` asks it."""

from diffuse_core.cli.bench.command import bench

__all__ = ["bench"]

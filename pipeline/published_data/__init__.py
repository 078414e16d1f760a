"""Published predictions with known outcomes: records of real nets, and dated forecasts of games."""

from pipeline.published_data.collections import COLLECTIONS, Collection, PublishedDataError, PublishedFile, find

__all__ = ["COLLECTIONS", "Collection", "PublishedDataError", "PublishedFile", "find"]

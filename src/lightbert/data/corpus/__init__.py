"""Text to token shards on disk."""

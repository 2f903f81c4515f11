"""The weights of each query, in slots that fit the tiles of keys."""

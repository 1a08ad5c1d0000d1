"""A whole tuned way of decoding as one JSON file, which forerun tune writes and all others read."""

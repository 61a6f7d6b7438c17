"""The largest number of outcome buckets that one person can fall into."""

"""The systems that viewkeep is measured against: one file each, run in its own environment."""

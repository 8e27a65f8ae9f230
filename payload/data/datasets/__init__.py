"""The data sets that live in memory."""

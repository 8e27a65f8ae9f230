"""Results of a cluster benchmark on the laptop: tables, a picture and JSON, and the comparison with
another benchmark.
"""

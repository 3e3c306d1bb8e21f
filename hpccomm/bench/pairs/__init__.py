"""Every rank with every other one: latency and bandwidth of each pair in both directions, and what is sick in it.

`tournament` says who meets whom when, `play` measures it, `matrix` is what came out, `outliers` finds what is slow by a
stated rule, `heat` shows it on a `grid`.
"""

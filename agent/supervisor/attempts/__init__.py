"""One attempt of a run: its hosts are prepared and checked, its ranks launched and watched to their end."""
